// The seam between the public templates and libmanta.so: everything here is type-erased bytes.
// Not for users; no promise of stability.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "manta/codec.h"
#include "manta/errors.h"
#include "manta/internal/export.h"
#include "manta/options.h"

namespace manta::internal {

struct Entry;       // an object or the future of one, as this process sees it
struct ActorEntry;  // an actor, as this process sees it

MANTA_EXPORT void Retain(Entry* entry) noexcept;
MANTA_EXPORT void Release(Entry* entry) noexcept;
MANTA_EXPORT void Retain(ActorEntry* actor) noexcept;
MANTA_EXPORT void Release(ActorEntry* actor) noexcept;

// Counts one use of an Entry or ActorEntry.
template <typename E>
class Handle {
 public:
  Handle() = default;
  static Handle Adopt(E* entry) {  // takes over one count
    Handle handle;
    handle.entry_ = entry;
    return handle;
  }
  Handle(const Handle& other) noexcept : entry_(other.entry_) {
    if (entry_ != nullptr) Retain(entry_);
  }
  Handle(Handle&& other) noexcept : entry_(other.entry_) { other.entry_ = nullptr; }
  Handle& operator=(Handle other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~Handle() {
    if (entry_ != nullptr) Release(entry_);
  }
  [[nodiscard]] E* get() const { return entry_; }

 private:
  E* entry_ = nullptr;
};

// ---- values ----

struct View {
  const std::byte* data = nullptr;
  std::size_t size = 0;
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data, size}; }
};

inline constexpr std::int64_t kForever = -1;
inline constexpr std::size_t kRefBytes = 24;

// While one lives, Refs and handles that this thread encodes are noted in it: whatever carries the
// bytes then also keeps those alive.
class MANTA_EXPORT RefScope {
 public:
  RefScope();
  ~RefScope();
  RefScope(const RefScope&) = delete;
  RefScope& operator=(const RefScope&) = delete;

  std::vector<Entry*> entries;      // counted
  std::vector<ActorEntry*> actors;  // counted

 private:
  RefScope* outer_;
};

MANTA_EXPORT void EncodeRef(Entry* entry, std::byte* out);  // kRefBytes
MANTA_EXPORT Entry* DecodeRef(const std::byte* in);         // counted
// `count` names, each `stride` bytes behind the one before: cheaper than one by one. An empty name gives nullptr.
MANTA_EXPORT void DecodeRefs(const std::byte* in, std::size_t stride, std::size_t count, Entry** out);
MANTA_EXPORT void EncodeActor(ActorEntry* actor, std::byte* out);
MANTA_EXPORT ActorEntry* DecodeActor(const std::byte* in);

// A value of `size` bytes, to be encoded into *out before PutEnd. Throws OutOfMemoryError.
MANTA_EXPORT Entry* PutBegin(std::size_t size, std::byte** out);
MANTA_EXPORT void PutEnd(Entry* entry, RefScope& scope);
MANTA_EXPORT void PutAbort(Entry* entry) noexcept;
// Returns when the value is where PutOptions::durable says. Throws InvalidError, IoError, UnavailableError.
MANTA_EXPORT void MakeDurable(Entry* entry);

// Waits for the value and shows its bytes; they stay as long as the entry is counted and, for values
// in the store, *keep lives. Throws what went wrong, or TimeoutError.
MANTA_EXPORT View Await(Entry* entry, std::int64_t timeout_us, KeepAlive* keep);
// Would Await return at once?
[[nodiscard]] MANTA_EXPORT bool IsReady(const Entry* entry) noexcept;
// `comes_again`: this is one of the slices of a wait without end. Then a task's own child may be run in place, however
// long that takes; a wait that has to end in time leaves it to other workers.
MANTA_EXPORT void AwaitAll(std::span<Entry* const> entries, std::int64_t timeout_us, bool comes_again = false);
// How many are ready once `count` are or the time is up; ready[i] tells which.
MANTA_EXPORT std::size_t WaitSome(std::span<Entry* const> entries, std::size_t count, std::int64_t timeout_us,
                                  std::vector<bool>* ready, bool comes_again = false);
MANTA_EXPORT void Cancel(Entry* entry, bool force);
MANTA_EXPORT std::string IdText(const Entry* entry);
[[noreturn]] MANTA_EXPORT void ThrowEmptyRef();

// ---- calls ----

class Invocation;
using Trampoline = void (*)(Invocation&);

// Which code to run: a trampoline made by the compiler for one signature or lambda, and the function
// or method it shall call (0 if the trampoline knows).
struct Site {
  Trampoline trampoline = nullptr;
  std::uint64_t target = 0;       // address, or the first word of a member pointer
  std::uint64_t adjust = 0;       // the second word of a member pointer
  bool target_is_address = true;  // false: a virtual method's index
  const char* name = nullptr;     // if the function has a stable name: then this travels, not an address
};

// Arguments under construction, one per thread, reused.
class MANTA_EXPORT Arguments {
 public:
  static Arguments& ForThisThread();  // emptied; nested use gets another one
  ~Arguments();

  std::byte* AddValue(std::size_t size);  // space for one encoded value
  void AddRef(Entry* entry);              // the value of another call: waited for
  void BeginList(std::size_t count);      // the next `count` items are one argument
  void Done();                            // after Submit or an exception: forget everything

  std::vector<std::byte> bytes;
  struct Hole {
    std::size_t at;  // offset in bytes of the item to be filled
    Entry* entry;    // counted
  };
  std::vector<Hole> holes;
  RefScope* scope = nullptr;
  bool in_use = false;
};

inline constexpr std::size_t kInlineArgument = 8192;  // larger ones go through the store

struct Plan;  // interned options
MANTA_EXPORT const Plan* Intern(const TaskOptions& options);

// Takes `returns` counted entries into out. Throws InvalidError (not initialised), OutOfMemoryError.
MANTA_EXPORT void Submit(const Site& site, Arguments& arguments, RefScope& scope, const Plan* plan,
                         std::uint32_t returns, Entry** out);
MANTA_EXPORT ActorEntry* CreateActor(const Site& site, Arguments& arguments, RefScope& scope,
                                     const ActorSettings& settings, const std::string& class_name);
MANTA_EXPORT void CallActor(ActorEntry* actor, const Site& site, Arguments& arguments, RefScope& scope,
                            const Plan* plan, std::uint32_t returns, Entry** out);
MANTA_EXPORT ActorEntry* FindActor(const std::string& name, const std::string& space);
MANTA_EXPORT void KillActor(ActorEntry* actor, bool restart);
MANTA_EXPORT std::string IdText(const ActorEntry* actor);

// ---- running ----

// One call being run in a worker, as its trampoline sees it.
class MANTA_EXPORT Invocation {
 public:
  virtual ~Invocation() = default;
  // The next argument's bytes; *keep holds them if they are in the store.
  virtual View Next(KeepAlive* keep) = 0;
  // If the next argument is a list of items, how many; then that many Next(). -1: it is not.
  virtual std::int64_t NextList() = 0;
  // Where to encode the `index`-th return value.
  virtual std::byte* Return(std::uint32_t index, std::size_t size) = 0;
  [[nodiscard]] virtual std::uint32_t returns() const = 0;

  std::uint64_t target = 0;
  std::uint64_t adjust = 0;
  void* self = nullptr;              // the actor
  void (*destroy)(void*) = nullptr;  // set by an actor's creation, with self
  // The same, for an actor whose state can be saved. Loading goes into one that was just created, and may put another
  // in its place. Both may throw.
  void (*save)(void* self, std::vector<std::byte>* out) = nullptr;
  void (*load)(void** self, std::span<const std::byte> state) = nullptr;
};

// With the number of returns of CallActor: the call changes nothing.
inline constexpr std::uint32_t kReadOnlyCall = 0x40000000U;

// MANTA_REMOTE: a function under a stable name.
MANTA_EXPORT void RegisterNamed(const char* name, Trampoline trampoline, std::uint64_t target);
MANTA_EXPORT const char* NameOf(Trampoline trampoline, std::uint64_t target);  // nullptr: none

}  // namespace manta::internal
