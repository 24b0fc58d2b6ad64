// How containers are sent: a count, then the elements; runs of plain values as one block. A vector, a
// span and an Array of the same plain values are the same bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "manta/array.h"
#include "manta/internal/builtin.h"
#include "manta/internal/dispatch.h"

namespace manta {
namespace internal {

// As many elements as fit into the bytes that are left, were they as large as in memory (or as a hash
// table's bucket): a false count cannot make us allocate more than we were sent.
template <typename T>
[[nodiscard]] std::size_t Reserve(const Reader& reader, std::size_t count) {
  return std::min(count, reader.left() / std::max(sizeof(T), sizeof(void*)));
}

template <typename Archive, typename Range>
void WriteElements(Archive& archive, const Range& range, std::size_t count) {
  archive(std::uint64_t{count});
  archive.Enter();
  for (const auto& element : range) archive(element);
  archive.Leave();
}

// Any container with push_back-like insertion at its end.
template <typename Container, typename T, typename... More>
struct ListCodec {
  using Parts = Types<T, More...>;
  template <typename Archive>
  static void Write(Archive& archive, const Container& value) {
    WriteElements(archive, value, value.size());
  }
  static Container Read(Reader& reader) {
    const std::size_t count = reader.Count(1);
    Container value;
    if constexpr (requires { value.reserve(count); }) value.reserve(Reserve<T>(reader, count));
    reader.Enter();
    for (std::size_t i = 0; i < count; ++i) Append(value, reader);
    reader.Leave();
    if (value.size() != count) reader.Fail("a key is there twice");
    return value;
  }

 private:
  static void Append(Container& value, Reader& reader) {
    if constexpr (requires { typename Container::mapped_type; }) {
      // Key before value, and at the end: where sorted input belongs.
      auto key = reader.Read<typename Container::key_type>();
      value.emplace_hint(value.end(), std::move(key), reader.Read<typename Container::mapped_type>());
    } else if constexpr (requires { typename Container::key_type; }) {
      value.emplace_hint(value.end(), reader.Read<T>());
    } else {
      value.push_back(reader.Read<T>());
    }
  }
};

// Vectors of plain values.
template <typename Container, typename T>
struct RunCodec {
  template <typename Archive>
  static void Write(Archive& archive, const Container& value) {
    archive(std::uint64_t{value.size()});
    WriteRun(archive, value.data(), value.size());
  }
  static Container Read(Reader& reader) {
    const std::size_t count = reader.Count(sizeof(T));
    const std::byte* from = TakeRun<T>(reader, count);
    if (IsAligned<T>(from)) {  // saves filling the new memory with zeros first
      const T* values = reinterpret_cast<const T*>(from);
      return Container(values, values + count);
    }
    if constexpr (std::is_default_constructible_v<T>) {
      Container value(count);
      if (count != 0) std::memcpy(static_cast<void*>(value.data()), from, count * sizeof(T));
      return value;
    } else {
      const Array<T> values = Array<T>::Copy(from, count);
      return Container(values.begin(), values.end());
    }
  }
};

}  // namespace internal

template <typename T, typename Alloc>
struct Codec<std::vector<T, Alloc>> : internal::ListCodec<std::vector<T, Alloc>, T> {};
template <internal::Raw T, typename Alloc>
struct Codec<std::vector<T, Alloc>> : internal::RunCodec<std::vector<T, Alloc>, T> {};
// A byte each, like an Array<bool>.
template <typename Alloc>
struct Codec<std::vector<bool, Alloc>> {
  template <typename Archive>
  static void Write(Archive& archive, const std::vector<bool, Alloc>& value) {
    archive(std::uint64_t{value.size()});
    for (const bool bit : value) archive(bit);
  }
  static std::vector<bool, Alloc> Read(Reader& reader) {
    std::vector<bool, Alloc> value(reader.Count(1));
    for (std::size_t i = 0; i < value.size(); ++i) value[i] = reader.Read<bool>();
    return value;
  }
};

template <typename T, std::size_t N>
struct Codec<std::array<T, N>> {
  using Parts = internal::Types<T>;
  template <typename Archive>
  static void Write(Archive& archive, const std::array<T, N>& value) {
    if constexpr (N == 0) {
      archive(std::byte{0});
    } else if constexpr (internal::Raw<T>) {
      internal::WriteRun(archive, value.data(), N);
    } else {
      for (const T& element : value) archive(element);
    }
  }
  static std::array<T, N> Read(Reader& reader) {
    if constexpr (N == 0) {
      (void)reader.Take(1);
      return {};
    } else if constexpr (internal::Raw<T> && std::is_default_constructible_v<T>) {
      std::array<T, N> value;
      std::memcpy(static_cast<void*>(value.data()), internal::TakeRun<T>(reader, N), sizeof value);
      return value;
    } else {
      return ReadEach(reader, std::make_index_sequence<N>());
    }
  }

 private:
  template <std::size_t... I>
  static std::array<T, N> ReadEach(Reader& reader, std::index_sequence<I...>) {
    return std::array<T, N>{((void)I, reader.Read<T>())...};
  }
};

template <typename T>
struct Codec<Array<T>> {
  using Parts = internal::Types<T>;
  template <typename Archive>
  static void Write(Archive& archive, const Array<T>& value) {
    archive(std::uint64_t{value.size()});
    if constexpr (internal::Raw<T>) {
      internal::WriteRun(archive, value.data(), value.size());
    } else {
      for (const T& element : value) archive(element);
    }
  }
  static Array<T> Read(Reader& reader) {
    if constexpr (internal::Raw<T>) {
      const std::size_t count = reader.Count(sizeof(T));
      const std::byte* from = internal::TakeRun<T>(reader, count);
      if (reader.keep() == nullptr || !internal::IsAligned<T>(from)) return Array<T>::Copy(from, count);
      return Array<T>::View({reinterpret_cast<const T*>(from), count}, *reader.keep());
    } else if constexpr (std::is_same_v<T, bool>) {
      const std::size_t count = reader.Count(1);
      const std::byte* from = reader.Take(count);
      for (std::size_t i = 0; i < count; ++i) {
        if (from[i] > std::byte{1}) reader.Fail("a bool is neither 0 nor 1");
      }
      return Array<T>::Copy(from, count);
    } else {
      return Array<T>(reader.Read<std::vector<T>>());
    }
  }
};

// Written like a vector. Received only as std::span<const T>, as a view of bytes somebody keeps.
template <typename T, std::size_t N>
struct Codec<std::span<T, N>> {
  using Value = std::remove_cv_t<T>;
  using Parts = internal::Types<Value>;
  static constexpr internal::Problem kReadProblem =
      internal::Raw<Value> && std::is_const_v<T> && N == std::dynamic_extent ? internal::Problem::kNone
                                                                             : internal::Problem::kView;
  template <typename Archive>
  static void Write(Archive& archive, std::span<T, N> value) {
    if constexpr (internal::Raw<Value>) {
      archive(std::uint64_t{value.size()});
      internal::WriteRun(archive, static_cast<const Value*>(value.data()), value.size());
    } else {
      internal::WriteElements(archive, value, value.size());
    }
  }
  static std::span<T, N> Read(Reader& reader) {
    if (reader.keep() == nullptr && reader.copies() == nullptr) {
      throw InvalidError(
          "cannot decode into a std::span: nobody would own its values; use manta::Array or std::vector");
    }
    const std::size_t count = reader.Count(sizeof(T));
    const std::byte* from = internal::TakeRun<Value>(reader, count);
    if (count == 0) return {};
    if (reader.keep() != nullptr && internal::IsAligned<T>(from)) return {reinterpret_cast<const Value*>(from), count};
    if (reader.copies() == nullptr) {
      throw InvalidError(
          "cannot decode into a std::span: its values are not aligned in the bytes received; use manta::Array");
    }
    auto copy = std::make_shared<const Array<Value>>(Array<Value>::Copy(from, count));
    reader.copies()->push_back(copy);
    return copy->span();
  }
};

template <typename T, typename Alloc>
struct Codec<std::deque<T, Alloc>> : internal::ListCodec<std::deque<T, Alloc>, T> {};
template <typename T, typename Alloc>
struct Codec<std::list<T, Alloc>> : internal::ListCodec<std::list<T, Alloc>, T> {};

#define MANTA_SET(SET)                 \
  template <typename T, typename... P> \
  struct Codec<SET<T, P...>> : internal::ListCodec<SET<T, P...>, T> {};
MANTA_SET(std::set)
MANTA_SET(std::multiset)
MANTA_SET(std::unordered_set)
MANTA_SET(std::unordered_multiset)
#undef MANTA_SET

#define MANTA_MAP(MAP)                             \
  template <typename K, typename V, typename... P> \
  struct Codec<MAP<K, V, P...>> : internal::ListCodec<MAP<K, V, P...>, K, V> {};
MANTA_MAP(std::map)
MANTA_MAP(std::multimap)
MANTA_MAP(std::unordered_map)
MANTA_MAP(std::unordered_multimap)
#undef MANTA_MAP

}  // namespace manta
