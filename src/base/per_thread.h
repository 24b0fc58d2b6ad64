// PerThread<T>() is a thread_local T that may also be used while the thread ends. A static's destructor may call the
// API after main's thread_locals are gone (statics that were made after Init are destroyed before Shutdown): it gets a
// new T, which is never destroyed, instead of the remains of the old one.
#pragma once

namespace manta::base {

template <typename T>
T& PerThread() {
  thread_local constinit T* value = nullptr;  // trivial: valid as long as the thread's memory
  struct AtEnd {
    ~AtEnd() {
      delete value;
      value = nullptr;
    }
  };
  if (value == nullptr) {
    value = new T();
    thread_local const AtEnd at_end;
    static_cast<void>(at_end);
  }
  return *value;
}

}  // namespace manta::base
