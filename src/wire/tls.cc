#include "wire/tls.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "base/program.h"

namespace manta::wire {
namespace {

std::mutex loading;
std::atomic<TlsLibrary*> loaded{nullptr};

// Beside libmanta.so, or where programs in bin/ have it. What the loader calls a program is not asked: that is argv[0],
// which has no folder if a shell found it by PATH, and the current one may be anybody's.
std::vector<std::string> Places() {
  std::vector<std::string> out;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&TlsLoaded), &info) != 0 && info.dli_fname != nullptr) {
    const std::string path = info.dli_fname;
    const std::size_t slash = path.rfind('/');
    if (slash != std::string::npos) out.push_back(path.substr(0, slash) + "/" MANTA_TLS_OBJECT);
  }
  out.push_back(base::BesideProgram(MANTA_BIN_TO_LIB "/" MANTA_TLS_OBJECT));
  return out;
}

}  // namespace

bool TlsLoaded() { return loaded.load(std::memory_order_acquire) != nullptr; }

Result<TlsLibrary*> LoadTls() {
  if (TlsLibrary* const library = loaded.load(std::memory_order_acquire); library != nullptr) return library;
  const std::lock_guard lock(loading);
  if (TlsLibrary* const library = loaded.load(std::memory_order_acquire); library != nullptr) return library;
  void* object = nullptr;
  std::string used;
  std::string why;
  for (const std::string& path : Places()) {
    object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    used = path;
    if (object != nullptr) break;
    why += Cat(why.empty() ? "" : "; ", dlerror());
  }
  if (object == nullptr) {
    return Status(Code::kUnavailable,
                  Cat("cannot load TLS: ", why, "; install libssl3 and the whole Manta package, or stay on loopback"));
  }
  using Entry = TlsLibrary* (*)(const char* version);
  const auto entry = reinterpret_cast<Entry>(dlsym(object, "manta_tls_library"));
  TlsLibrary* const library = entry != nullptr ? entry(MANTA_VERSION) : nullptr;
  if (library == nullptr) {
    return Status(Code::kUnavailable,
                  Cat(used, " is of another version than ", MANTA_VERSION, "; install them together"));
  }
  loaded.store(library, std::memory_order_release);
  return library;
}

}  // namespace manta::wire
