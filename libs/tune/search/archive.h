// Saver and Loader turn the state of a scheduler into bytes and back. A class names its fields once:
//
//   template <class Self, class Archive>
//   static void Fields(Self& self, Archive& archive) { archive(self.times_, self.values_); }
//
// and both directions follow from it. Numbers are written in the machine's byte order: a run is restored on the kind of
// machine that it was saved on.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace manta::tune {

class Saver {
 public:
  explicit Saver(std::string_view format) : bytes_(format) { bytes_ += '\n'; }
  std::string Take() { return std::move(bytes_); }

  template <class... T>
  void operator()(const T&... fields) {
    (Put(fields), ...);
  }

 private:
  template <class T>
  void Put(const T& field) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      char raw[sizeof(T)];
      std::memcpy(raw, &field, sizeof(T));
      bytes_.append(raw, sizeof(T));
    } else if constexpr (requires { T::Fields(field, *this); }) {
      T::Fields(field, *this);
    } else {
      Put(static_cast<std::uint64_t>(field.size()));
      for (const auto& element : field) Put(element);
    }
  }
  void Put(const std::string& text) {
    Put(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
  }
  template <class A, class B>
  void Put(const std::pair<A, B>& pair) {
    Put(pair.first);
    Put(pair.second);
  }
  template <class T>
  void Put(const std::optional<T>& field) {
    Put(field.has_value());
    if (field) Put(*field);
  }
  template <class... T>
  void Put(const std::variant<T...>& field) {
    Put(static_cast<std::uint8_t>(field.index()));
    std::visit([&](const auto& held) { Put(held); }, field);
  }

  std::string bytes_;
};

// Bytes that do not begin with the format, end too early or go on too long throw std::invalid_argument.
class Loader {
 public:
  Loader(std::string_view bytes, std::string_view format) : bytes_(bytes) {
    if (!bytes.starts_with(format) || bytes.substr(format.size(), 1) != "\n") {
      throw std::invalid_argument("these bytes are no saved " + std::string(format) + ". Use those of its Save.");
    }
    bytes_.remove_prefix(format.size() + 1);
  }
  void Finish() const {
    if (!bytes_.empty()) Damaged("it is too long");
  }

  template <class... T>
  void operator()(T&... fields) {
    (Get(fields), ...);
  }

 private:
  [[noreturn]] static void Damaged(const std::string& how) {
    throw std::invalid_argument("the saved scheduler is damaged: " + how + ". Use another save.");
  }
  std::string_view Take(std::uint64_t n) {
    if (n > bytes_.size()) Damaged("it ends too early");
    std::string_view part = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return part;
  }
  std::uint64_t Size() {
    std::uint64_t size = 0;
    Get(size);
    if (size > bytes_.size()) Damaged("a list is longer than the bytes");  // each element has at least one byte
    return size;
  }

  template <class T>
  void Get(T& field) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      std::memcpy(&field, Take(sizeof(T)).data(), sizeof(T));
    } else if constexpr (requires { T::Fields(field, *this); }) {
      T::Fields(field, *this);
    } else if constexpr (requires { field.resize(1); }) {  // a vector
      field.resize(Size());
      for (auto& element : field) Get(element);
    } else {  // a set or a map
      field.clear();
      for (auto n = Size(); n > 0; --n) {
        if constexpr (requires { typename T::mapped_type; }) {
          std::pair<typename T::key_type, typename T::mapped_type> element;
          Get(element);
          field.insert(std::move(element));
        } else {
          typename T::value_type element{};
          Get(element);
          field.insert(std::move(element));
        }
      }
    }
  }
  void Get(std::string& text) { text = std::string(Take(Size())); }
  template <class A, class B>
  void Get(std::pair<A, B>& pair) {
    Get(pair.first);
    Get(pair.second);
  }
  template <class T>
  void Get(std::optional<T>& field) {
    bool present = false;
    Get(present);
    field.reset();
    if (present) Get(field.emplace());
  }
  template <class... T>
  void Get(std::variant<T...>& field) {
    std::uint8_t index = 0;
    Get(index);
    if (index >= sizeof...(T)) Damaged("a value has an unknown type");
    std::uint8_t at = 0;
    ((at++ == index ? Get(field.template emplace<T>()) : void()), ...);
  }

  std::string_view bytes_;
};

// Save and Load of a class with Fields.
template <class T>
std::string SaveFields(const T& object, std::string_view format) {
  Saver saver(format);
  T::Fields(object, saver);
  return saver.Take();
}

template <class T>
void LoadFields(T& object, std::string_view bytes, std::string_view format) {
  Loader loader(bytes, format);
  T::Fields(object, loader);
  loader.Finish();
}

}  // namespace manta::tune
