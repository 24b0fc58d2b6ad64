// A Ref<T> names a value that some task will produce, or that Put stored. Copies are cheap; the value
// is freed after the last copy in the cluster goes. Refs can be passed to tasks and actors, and stored
// inside values. Const methods may be called from any thread.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "manta/array.h"
#include "manta/codec.h"
#include "manta/errors.h"
#include "manta/internal/core.h"
#include "manta/options.h"

namespace manta {

namespace internal {

// The elements of types whose bytes can be read in place: vector, span and Array share one encoding.
template <typename T>
struct ElementOf {
  static constexpr bool known = false;
  static constexpr bool is_vector = false;
  using type = int;
};
template <Raw T>
struct ElementOf<std::vector<T>> {
  static constexpr bool known = true;
  static constexpr bool is_vector = true;
  using type = T;
};
template <Raw T>
struct ElementOf<std::span<const T>> {
  static constexpr bool known = true;
  static constexpr bool is_vector = false;
  using type = T;
};
template <typename T>
struct ElementOf<Array<T>> {
  static constexpr bool known = true;
  static constexpr bool is_vector = false;
  using type = T;
};

}  // namespace internal

using Micros = std::chrono::microseconds;
inline constexpr Micros kForever{internal::kForever};

template <typename T>
class Ref {
 public:
  using value_type = T;

  Ref() = default;  // names nothing; using it throws InvalidError
  explicit Ref(internal::Handle<internal::Entry> handle) : handle_(std::move(handle)) {}

  // Waits for the value. Throws TaskError if the task's function threw, WorkerCrashedError if its
  // process died and no retries are left, LostError, CancelledError, TimeoutError, …
  T Get(Micros timeout = kForever) const {
    KeepAlive keep;
    const internal::View view = internal::Await(entry(), timeout.count(), &keep);
    if constexpr (!std::is_void_v<T>) return Decode<T>(view.bytes(), keep);
  }

  [[nodiscard]] bool empty() const { return handle_.get() == nullptr; }
  [[nodiscard]] std::string id() const { return internal::IdText(entry()); }

  // A vector's elements can be read in place as an Array.
  operator Ref<Array<typename internal::ElementOf<T>::type>>() const  // NOLINT(google-explicit-constructor)
    requires internal::ElementOf<T>::is_vector
  {
    return Ref<Array<typename internal::ElementOf<T>::type>>(handle_);
  }

  [[nodiscard]] internal::Entry* entry() const {
    if (handle_.get() == nullptr) internal::ThrowEmptyRef();
    return handle_.get();
  }

 private:
  internal::Handle<internal::Entry> handle_;
};

// Inside a value a Ref is its name; whatever carries the value keeps the object alive.
template <typename T>
struct Codec<Ref<T>> {
  template <typename Archive>
  static void Write(Archive& archive, const Ref<T>& ref) {
    std::byte name[internal::kRefBytes]{};
    if constexpr (!Archive::kCounting) internal::EncodeRef(ref.empty() ? nullptr : ref.entry(), name);
    archive.Bytes(name, sizeof name);
  }
  static Ref<T> Read(Reader& reader) {
    std::byte name[internal::kRefBytes];
    reader.Bytes(name, sizeof name);
    return Ref<T>(internal::Handle<internal::Entry>::Adopt(internal::DecodeRef(name)));
  }
};

// What TryGet gives to callers who handle failure: a value, or the error.
template <typename T>
class Try {
 public:
  explicit Try(T value) : value_(std::move(value)) {}
  explicit Try(std::exception_ptr error, Code code, std::string message)
      : error_(std::move(error)), code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] T& value() {
    if (!ok()) std::rethrow_exception(error_);
    return *value_;
  }
  T& operator*() { return value(); }
  [[nodiscard]] Code code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }

 private:
  std::optional<T> value_;
  std::exception_ptr error_;
  Code code_ = Code::kOk;
  std::string message_;
};

template <typename T>
struct WaitResult {
  std::vector<Ref<T>> ready;  // both in the order given to Wait
  std::vector<Ref<T>> rest;
};

namespace internal {

template <typename T>
std::vector<Entry*> EntriesOf(const std::vector<Ref<T>>& refs) {
  std::vector<Entry*> entries;
  entries.reserve(refs.size());
  for (const Ref<T>& ref : refs) entries.push_back(ref.entry());
  return entries;
}

// The positions of the first `count` that are ready, or of fewer when the time is up. A search from the front finds
// values that are ready without a look at the rest.
template <typename T>
std::vector<std::size_t> FirstReady(const std::vector<Ref<T>>& refs, std::size_t count, Micros timeout) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < refs.size() && found.size() < count; ++i) {
    if (IsReady(refs[i].entry())) found.push_back(i);
  }
  if (found.size() == count) return found;
  std::vector<bool> ready;
  WaitSome(EntriesOf(refs), count, timeout.count(), &ready);
  found.clear();
  for (std::size_t i = 0; i < refs.size() && found.size() < count; ++i) {
    if (ready[i]) found.push_back(i);
  }
  return found;
}

template <typename T>
Entry* PutValue(const T& value) {
  RefScope scope;
  std::byte* out = nullptr;
  const std::size_t size = EncodedSize(value);
  Entry* entry = PutBegin(size, &out);
  try {
    Encode(value, std::span<std::byte>(out, size));
  } catch (...) {
    PutAbort(entry);
    throw;
  }
  PutEnd(entry, scope);
  return entry;
}

}  // namespace internal

// Stores a value where every task can read it. Throws OutOfMemoryError when the store is full; if it is to be durable,
// also InvalidError, IoError and UnavailableError.
template <typename T>
Ref<T> Put(const T& value, const PutOptions& options = {}) {
  static_assert(RequireEncodable<T>(), "manta::Put: this type cannot be stored");
  Ref<T> ref(internal::Handle<internal::Entry>::Adopt(internal::PutValue(value)));
  if (options.durable) internal::MakeDurable(ref.entry());
  return ref;
}
template <typename T, std::size_t N>
Ref<Array<std::remove_const_t<T>>> Put(std::span<T, N> values, const PutOptions& options = {}) {
  const std::span<const std::remove_const_t<T>> view(values);
  Ref<Array<std::remove_const_t<T>>> ref(internal::Handle<internal::Entry>::Adopt(internal::PutValue(view)));
  if (options.durable) internal::MakeDurable(ref.entry());
  return ref;
}
inline Ref<std::string> Put(const char* text, const PutOptions& options = {}) {
  return Put(std::string(text), options);
}

template <typename T>
T Get(const Ref<T>& ref, Micros timeout = kForever) {
  return ref.Get(timeout);
}
// All of them, in order; throws the first failure in that order.
template <typename T>
auto Get(const std::vector<Ref<T>>& refs, Micros timeout = kForever) {
  internal::AwaitAll(internal::EntriesOf(refs), timeout.count());
  if constexpr (std::is_void_v<T>) {
    for (const Ref<T>& ref : refs) ref.Get();
  } else {
    std::vector<T> values;
    values.reserve(refs.size());
    for (const Ref<T>& ref : refs) values.push_back(ref.Get());
    return values;
  }
}

// Never throws for a failed task.
template <typename T>
auto TryGet(const Ref<T>& ref, Micros timeout = kForever) {
  using Value = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
  try {
    if constexpr (std::is_void_v<T>) {
      ref.Get(timeout);
      return Try<Value>(std::monostate{});
    } else {
      return Try<Value>(ref.Get(timeout));
    }
  } catch (const Error& error) {
    return Try<Value>(std::current_exception(), error.code(), error.what());
  }
}

// Waits until `count` of them are ready (a failed task is ready too) or the time is up. A loop that takes one value
// after the other gives back what is left, and then copies nothing: `result = Wait(std::move(result.rest), 1)`.
template <typename T>
WaitResult<T> Wait(std::vector<Ref<T>>&& refs, std::size_t count, Micros timeout = kForever) {
  const std::vector<std::size_t> ready = internal::FirstReady(refs, count, timeout);
  WaitResult<T> result;
  result.rest = std::move(refs);
  if (ready.empty()) return result;
  result.ready.reserve(ready.size());
  auto to = result.rest.begin() + static_cast<std::ptrdiff_t>(ready.front());
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const auto from = result.rest.begin() + static_cast<std::ptrdiff_t>(ready[i]);
    const auto end =
        i + 1 < ready.size() ? result.rest.begin() + static_cast<std::ptrdiff_t>(ready[i + 1]) : result.rest.end();
    result.ready.push_back(std::move(*from));
    to = std::move(from + 1, end, to);
  }
  result.rest.erase(to, result.rest.end());
  return result;
}
template <typename T>
WaitResult<T> Wait(const std::vector<Ref<T>>& refs, std::size_t count, Micros timeout = kForever) {
  return Wait(std::vector<Ref<T>>(refs), count, timeout);
}

// A queued task is dropped; a running one is asked to stop (it sees CancelRequested()), or, with
// force, its worker is killed. Get then throws CancelledError. No effect on what has finished.
template <typename T>
void Cancel(const Ref<T>& ref, bool force = false) {
  internal::Cancel(ref.entry(), force);
}

}  // namespace manta
