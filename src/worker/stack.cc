#include "worker/stack.h"

#include <dlfcn.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <span>
#include <sstream>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "base/program.h"
#include "worker/symbols.h"

namespace manta::worker {
namespace {

constexpr int kDepth = 32;
// A destructor that throws and catches while the stack unwinds must not push out the throw that matters.
constexpr unsigned kThrows = 4;
// Names kept; far more than places that throw. Then they are forgotten and looked up again.
constexpr std::size_t kNames = 8192;

struct Throw {
  const void* exception = nullptr;
  int depth = 0;
  std::uintptr_t frames[kDepth];
};

// Trivial, so that a throw during a thread's end is harmless.
thread_local const void* scope_end = nullptr;  // stacks end where the stack is above this; null: not in a scope
thread_local unsigned throws = 0;
thread_local Throw recent[kThrows];

struct Walk {
  Throw* into;
  const void* end;
};

_Unwind_Reason_Code Step(_Unwind_Context* context, void* argument) {
  auto* walk = static_cast<Walk*>(argument);
  // The context tells where the frame's stack begins (below), so only the frame after the scope's own is known
  // to be outside.
  if (reinterpret_cast<const void*>(_Unwind_GetCFA(context)) > walk->end) {
    if (walk->into->depth > 0) --walk->into->depth;
    return _URC_END_OF_STACK;
  }
  if (walk->into->depth == kDepth) return _URC_END_OF_STACK;
  int before = 0;
  const std::uintptr_t at = _Unwind_GetIPInfo(context, &before);
  if (at == 0) return _URC_END_OF_STACK;
  walk->into->frames[walk->into->depth++] = before != 0 ? at : at - 1;  // inside the call, not behind it
  return _URC_NO_REASON;
}

__attribute__((noinline)) void Keep(const void* exception) {
  Throw* slot = &recent[throws++ % kThrows];
  slot->exception = exception;
  slot->depth = 0;
  Walk walk{slot, scope_end};
  _Unwind_Backtrace(Step, &walk);
}

// A throw outside of scopes may get the memory of an exception that was freed.
void Forget(const void* exception) {
  for (Throw& slot : recent) {
    if (slot.exception == exception) slot.exception = nullptr;
  }
}

// Lines by address. A stack's frames that are unknown are looked up together, one pass per file.
class Names {
 public:
  struct Frame {
    std::string line;   // "Parse(int) + 0x1f (my_program) at parse.cc:12"
    bool ours = false;  // inside libmanta.so or its templates: of no interest to the user
  };

  // Ours are left out at both ends, the throwing one (an error of Get) and the invoking one; between them a
  // user called by us called by a user is told in full.
  std::string Describe(std::span<const std::uintptr_t> addresses) {
    const std::lock_guard lock(mutex_);
    std::array<const Frame*, kDepth> frames;  // an unordered_map never moves what it holds
    if (!Look(addresses, frames.data())) {
      if (known_.size() > kNames) known_.clear();
      Learn({addresses.begin(), addresses.end()});
      Look(addresses, frames.data());
    }
    std::size_t first = 0;
    std::size_t end = addresses.size();
    while (end > 0 && frames[end - 1]->ours) --end;
    while (first < end && frames[first]->ours) ++first;
    std::string text;
    for (std::size_t i = first; i < end; ++i) {
      ((((text += "  #") += std::to_string(i - first)) += ' ') += frames[i]->line) += '\n';
    }
    return text;
  }

 private:
  bool Look(std::span<const std::uintptr_t> addresses, const Frame** frames) const {
    for (const std::uintptr_t address : addresses) {
      const auto found = known_.find(address);
      if (found == known_.end()) return false;
      *frames++ = &found->second;
    }
    return true;
  }

  void Learn(std::vector<std::uintptr_t> addresses) {
    static const base::Module* self = base::ModuleOf(reinterpret_cast<const void*>(&Keep));
    while (!addresses.empty()) {
      const base::Module* module = base::ModuleOf(reinterpret_cast<const void*>(addresses.front()));
      std::vector<std::uintptr_t> here;
      std::vector<std::uintptr_t> others;
      for (const std::uintptr_t address : addresses) {
        const bool same = base::ModuleOf(reinterpret_cast<const void*>(address)) == module;
        (same ? here : others).push_back(address);
      }
      addresses = std::move(others);
      std::vector<Symbol> found(here.size());
      if (module == nullptr) {
        for (const std::uintptr_t address : here) {
          std::ostringstream line;
          line << "0x" << std::hex << address;
          known_[address] = {line.str(), false};
        }
        continue;
      }
      const SymbolFile file(*module);
      file.Find(here, found);
      for (std::size_t i = 0; i < here.size(); ++i)
        known_[here[i]] = Explain(*module, here[i], found[i], file, module == self);
    }
  }

  static Frame Explain(const base::Module& module, std::uintptr_t address, const Symbol& symbol, const SymbolFile& file,
                       bool in_self) {
    Frame frame;
    std::ostringstream line;
    if (symbol.name.empty()) {
      line << FileName(module.path) << "+0x" << std::hex << address - module.base;
      // The program itself holds libmanta only when linked statically, as tests do.
      frame.ours = in_self && !module.program;
    } else {
      const std::string function = Demangle(std::string(symbol.name).c_str());
      const std::string name = ShortName(function);
      line << (function.size() > 160 ? name : function) << " + 0x" << std::hex << address - module.bias - symbol.value
           << " (" << FileName(module.path) << ")";
      frame.ours = (in_self && !module.program) || name.starts_with("manta::internal::") ||
                   name.starts_with("manta::worker::") || name == "__cxa_throw";
      for (const char* plumbing :
           {"std::__invoke", "std::invoke", "std::__apply_impl", "std::apply", "std::_Function"}) {
        frame.ours |= name.starts_with(plumbing);
      }
    }
    if (!frame.ours) {
      if (const Place place = file.FindLine(address); place.line != 0) {
        line << std::dec << " at " << place.file << ":" << place.line;
      }
    }
    frame.line = line.str();
    return frame;
  }

  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, Frame> known_;
};

Names& AllNames() {
  static auto* names = new Names;
  return *names;
}

}  // namespace

// Where the caller's stack is, not where the scope is: AddressSanitizer keeps variables elsewhere.
__attribute__((noinline)) ThrowScope::ThrowScope() : outer_(scope_end) { scope_end = __builtin_dwarf_cfa(); }
ThrowScope::~ThrowScope() { scope_end = outer_; }

std::string DescribeThrow() {
  const std::exception_ptr at_hand = std::current_exception();
  if (at_hand == nullptr) return {};
  const void* exception = nullptr;
  static_assert(sizeof at_hand == sizeof exception);  // libstdc++ keeps the thrown object's address in it
  __builtin_memcpy(static_cast<void*>(&exception), &at_hand, sizeof exception);
  const Throw* kept = nullptr;
  for (unsigned back = 1; back <= kThrows && back <= throws && kept == nullptr; ++back) {
    const Throw& candidate = recent[(throws - back) % kThrows];
    if (candidate.exception == exception) kept = &candidate;
  }
  if (kept == nullptr) return {};
  return AllNames().Describe(std::span(kept->frames).first(static_cast<std::size_t>(kept->depth)));
}

std::string FunctionName(const void* address) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<const void*, std::string>;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known->find(address); found != known->end()) return found->second;
  }
  std::string name;
  const base::Module* module = base::ModuleOf(address);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (module != nullptr) {
    const SymbolFile file(*module);
    Symbol symbol;
    file.Find({&at, 1}, {&symbol, 1});
    if (!symbol.name.empty()) {
      // A lambda is found by its trampoline, whose only template argument it is.
      std::string full = Demangle(std::string(symbol.name).c_str());
      static constexpr std::string_view kTrampoline = "void manta::internal::CallFunctor<";
      if (full.starts_with(kTrampoline)) full = full.substr(kTrampoline.size(), full.rfind('>') - kTrampoline.size());
      name = ShortName(full);
    }
  }
  if (name.empty()) {
    std::ostringstream text;
    if (module != nullptr) text << FileName(module->path) << "+";
    text << "0x" << std::hex << (module != nullptr ? at - module->base : at);
    name = text.str();
  }
  const std::lock_guard lock(mutex);
  return known->emplace(address, name).first->second;
}

}  // namespace manta::worker

// The name every throw calls. Exported, and before libstdc++ in the order of loading.
extern "C" __attribute__((visibility("default"), noreturn)) void __cxa_throw(void* exception, std::type_info* type,
                                                                             void (*destroy)(void*)) {
  using Real = void (*)(void*, std::type_info*, void (*)(void*));
  static std::atomic<Real> cached{nullptr};
  Real real = cached.load(std::memory_order_relaxed);
  if (real == nullptr) {
    real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "__cxa_throw"));
    if (real == nullptr) std::abort();
    cached.store(real, std::memory_order_relaxed);
  }
  if (manta::worker::scope_end != nullptr) {
    manta::worker::Keep(exception);
  } else if (manta::worker::throws != 0) {
    manta::worker::Forget(exception);
  }
  real(exception, type, destroy);
  __builtin_unreachable();
}
