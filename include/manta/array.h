// Array<T> is an immutable run of plain values (numbers, small structs of numbers) that many may hold
// at once: copying one copies a pointer. Get() of an Array that lies in the store reads it in place;
// the memory stays as long as any copy of the Array does.
//
// Const methods may be called from any thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace manta {

// Whatever must live on while somebody looks at its bytes.
using KeepAlive = std::shared_ptr<const void>;

template <typename T>
class Array {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>,
                "manta::Array holds plain values (numbers, structs of numbers); use std::vector for everything else");
  static_assert(!std::is_const_v<T> && !std::is_volatile_v<T>, "write manta::Array<T>: it is immutable already");

 public:
  using value_type = T;
  using const_iterator = const T*;
  using iterator = const T*;

  Array() = default;
  // Takes the vector's memory: no copy.
  explicit Array(std::vector<T>&& values)
    requires(!std::is_same_v<T, bool>)
  {
    auto owner = std::make_shared<const std::vector<T>>(std::move(values));
    data_ = owner->data();
    size_ = owner->size();
    owner_ = std::move(owner);
  }
  explicit Array(std::span<const T> values) : Array(Copy(values.data(), values.size())) {}
  Array(std::initializer_list<T> values) : Array(Copy(values.begin(), values.size())) {}
  Array(std::size_t count, const T& fill) {
    T* to = Allocate(count);
    for (std::size_t i = 0; i < count; ++i) new (to + i) T(fill);
  }

  // Looks at memory that `owner` keeps alive, and that nobody changes as long as it does.
  [[nodiscard]] static Array View(std::span<const T> values, KeepAlive owner) {
    Array array;
    array.data_ = values.data();
    array.size_ = values.size();
    array.owner_ = std::move(owner);
    return array;
  }
  // `count` values from bytes of any alignment.
  [[nodiscard]] static Array Copy(const void* bytes, std::size_t count) {
    Array array;
    T* to = array.Allocate(count);
    if (count != 0) std::memcpy(static_cast<void*>(to), bytes, count * sizeof(T));
    return array;
  }

  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] const T* begin() const noexcept { return data_; }
  [[nodiscard]] const T* end() const noexcept { return data_ + size_; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] const T& at(std::size_t i) const {
    if (i >= size_) {
      throw std::out_of_range("manta::Array: element " + std::to_string(i) + " of " + std::to_string(size_));
    }
    return data_[i];
  }
  [[nodiscard]] const T& front() const noexcept { return data_[0]; }
  [[nodiscard]] const T& back() const noexcept { return data_[size_ - 1]; }
  [[nodiscard]] std::span<const T> span() const noexcept { return {data_, size_}; }
  operator std::span<const T>() const noexcept { return span(); }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] std::vector<T> to_vector() const { return std::vector<T>(begin(), end()); }

  friend bool operator==(const Array& a, const Array& b)
    requires requires(const T& t) { t == t; }
  {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i) {
      if (!(a.data_[i] == b.data_[i])) return false;
    }
    return true;
  }

 private:
  // Line-aligned, so that wide loads do not straddle lines.
  static constexpr std::align_val_t kAlignment{alignof(T) > 64 ? alignof(T) : 64};

  // Memory for `count` values, owned by this Array; the caller fills it at once.
  T* Allocate(std::size_t count) {
    if (count == 0) return nullptr;
    if (count > static_cast<std::size_t>(-1) / 2 / sizeof(T)) throw std::bad_array_new_length();
    void* memory = ::operator new(count * sizeof(T), kAlignment);
    owner_ = KeepAlive(memory, [](void* old) { ::operator delete(old, kAlignment); });
    data_ = static_cast<T*>(memory);
    size_ = count;
    return static_cast<T*>(memory);
  }

  const T* data_ = nullptr;
  std::size_t size_ = 0;
  KeepAlive owner_;
};

}  // namespace manta
