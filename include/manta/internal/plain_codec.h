// The bytes of values that cross languages (manta/plain.h). Each value is a tag and what the tag says:
//
//   kNone kFalse kTrue             nothing
//   kInt kUInt kFloat              8 bytes; kUInt only for what does not fit kInt
//   kText kBytes                   a count of 8 bytes, that many bytes; text is UTF-8
//   kTuple                         a count of 1 byte, that many values
//   kList                          a count of 8 bytes, that many values
//   kDict                          a count of 8 bytes, that many keys and values in turns
//   kArray                         kind ('b' bool, 'i', 'u', 'f', 'c' complex), bytes of an element, dimensions (1 byte
//                                  each), the shape (8 bytes each), padding to a multiple of 64 from the start of the
//                                  blob, the elements in C order
//   kRef kActor                    kRefBytes: its name
//   kPickle                        of Python, with buffers beside it: only a process with Python can read it
//   kArrow                         record batches: see manta/arrow.h and src/api/arrow.cc
//
// All numbers are little-endian and not aligned. Python writes its own values so, too, as far as the first byte tells.
#pragma once

#include <array>
#include <cmath>
#include <complex>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "manta/array.h"
#include "manta/codec.h"
#include "manta/internal/core.h"

namespace manta {

template <typename T>
struct PlainValue;
template <typename T>
struct Tensor;
template <typename T>
class Ref;
class PyActorHandle;

namespace internal {

enum class PlainTag : std::uint8_t {
  kNone = 0,
  kFalse,
  kTrue,
  kInt,
  kFloat,
  kText,
  kBytes,
  kTuple,
  kPickle,
  kList,
  kDict,
  kArray,
  kRef,
  kActor,
  kArrow,
  kUInt,
};

[[nodiscard]] MANTA_EXPORT const char* PlainTagName(PlainTag tag);
// The same value without pickle, which only a process that has Python can make. Throws InvalidError.
MANTA_EXPORT View PlainOfPickle(View pickle, KeepAlive* keep);
// By the Python front end: how it does that.
using PickleReader = View (*)(View pickle, KeepAlive* keep);
MANTA_EXPORT void SetPickleReader(PickleReader reader);
[[noreturn]] MANTA_EXPORT void ThrowNotReadable(PlainTag tag, const char* wanted);

// ---- what kind of type it is ----

template <typename T>
concept PlainNumber = (std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8) ||
                      std::is_same_v<T, float> || std::is_same_v<T, double>;
template <typename T>
concept PlainElement = PlainNumber<T> || std::is_same_v<T, bool> || std::is_same_v<T, std::complex<float>> ||
                       std::is_same_v<T, std::complex<double>>;
template <typename T>
concept PlainText =
    std::is_same_v<T, std::string> || std::is_same_v<T, std::string_view> || std::is_same_v<T, const char*>;
template <typename T>
concept PlainMap = requires {
  typename T::key_type;
  typename T::mapped_type;
};
template <typename T>
inline constexpr bool kIsSpan = false;  // nobody would own what it looks at
template <typename T, std::size_t N>
inline constexpr bool kIsSpan<std::span<T, N>> = true;
template <typename T>
concept PlainSequence = !PlainText<T> && !PlainMap<T> && !kIsSpan<T> && requires(const T& t) {
  typename T::value_type;
  t.begin();
  t.end();
  t.size();
};
template <typename T>
struct PlainShape {
  static constexpr bool kRef = false, kTuple = false, kOptional = false, kVariant = false, kArray = false,
                        kTensor = false;
};
template <typename T>
struct PlainShape<Ref<PlainValue<T>>> : PlainShape<void> {
  static constexpr bool kRef = true;
};
template <typename... T>
struct PlainShape<std::tuple<T...>> : PlainShape<void> {
  static constexpr bool kTuple = true;
};
template <typename A, typename B>
struct PlainShape<std::pair<A, B>> : PlainShape<void> {
  static constexpr bool kTuple = true;
};
template <typename T>
struct PlainShape<std::optional<T>> : PlainShape<void> {
  static constexpr bool kOptional = true;
  using Value = T;
};
template <typename... T>
struct PlainShape<std::variant<T...>> : PlainShape<void> {
  static constexpr bool kVariant = true;
};
template <typename T>
struct PlainShape<Array<T>> : PlainShape<void> {
  static constexpr bool kArray = true;
};
template <typename T>
struct PlainShape<Tensor<T>> : PlainShape<void> {
  static constexpr bool kTensor = true;
  using Value = T;
};

template <typename T>
consteval bool PlainType();
template <typename Tuple, std::size_t... I>
consteval bool PlainTuple(std::index_sequence<I...>) {
  return (PlainType<std::remove_cv_t<std::tuple_element_t<I, Tuple>>>() && ...);
}
template <typename... T>
consteval bool PlainVariant(const std::variant<T...>*) {
  return (PlainType<T>() && ...);
}
// Types that are plain already, as whole values: ArrowBatch, ArrowTable.
template <typename T>
concept PlainCodec = requires { Codec<T>::kPlain; };

template <typename T>
consteval bool PlainType() {
  using S = PlainShape<T>;
  if constexpr (PlainCodec<T> || std::is_same_v<T, bool> || PlainNumber<T> || PlainText<T> ||
                std::is_same_v<T, std::monostate> || std::is_same_v<T, PyActorHandle> || S::kRef) {
    return true;
  } else if constexpr (S::kTuple) {
    return std::tuple_size_v<T> <= 255 && PlainTuple<T>(std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (S::kOptional) {
    return PlainType<typename S::Value>();
  } else if constexpr (S::kVariant) {
    return PlainVariant(static_cast<const T*>(nullptr));
  } else if constexpr (S::kTensor) {
    return PlainElement<typename S::Value>;
  } else if constexpr (S::kArray) {
    return PlainElement<typename T::value_type> || std::is_same_v<typename T::value_type, std::byte>;
  } else if constexpr (PlainMap<T>) {
    return PlainType<typename T::key_type>() && PlainType<typename T::mapped_type>();
  } else if constexpr (PlainSequence<T>) {
    return PlainElement<typename T::value_type> || std::is_same_v<typename T::value_type, std::byte> ||
           PlainType<std::remove_cv_t<typename T::value_type>>();
  } else {
    return false;
  }
}

// ---- writing ----

template <typename Archive>
void WriteTag(Archive& archive, PlainTag tag) {
  archive.Bytes(&tag, 1);
}

template <typename T>
consteval char ElementKind() {
  if constexpr (std::is_same_v<T, bool>) return 'b';
  if constexpr (std::is_integral_v<T>) return std::is_signed_v<T> ? 'i' : 'u';
  return std::is_floating_point_v<T> ? 'f' : 'c';
}

template <typename Archive, typename T>
void WritePlainArray(Archive& archive, const T* values, std::span<const std::uint64_t> shape) {
  WriteTag(archive, PlainTag::kArray);
  const char head[] = {ElementKind<T>(), static_cast<char>(sizeof(T)), static_cast<char>(shape.size())};
  archive.Bytes(head, sizeof head);
  std::uint64_t count = 1;
  for (const std::uint64_t length : shape) {
    archive.Bytes(&length, sizeof length);
    count *= length;
  }
  archive.Align();
  archive.Bytes(values, count * sizeof(T));
}

template <typename Archive, typename T>
void WritePlain(Archive& archive, const T& value) {
  using S = PlainShape<T>;
  if constexpr (PlainCodec<T>) {
    Codec<T>::Write(archive, value);
  } else if constexpr (std::is_same_v<T, bool>) {
    WriteTag(archive, value ? PlainTag::kTrue : PlainTag::kFalse);
  } else if constexpr (std::is_same_v<T, std::monostate>) {
    WriteTag(archive, PlainTag::kNone);
  } else if constexpr (std::is_integral_v<T>) {
    const bool large = std::is_unsigned_v<T> && static_cast<std::uint64_t>(value) > INT64_MAX;
    WriteTag(archive, large ? PlainTag::kUInt : PlainTag::kInt);
    const auto number = static_cast<std::uint64_t>(value);  // the sign is extended
    archive.Bytes(&number, sizeof number);
  } else if constexpr (std::is_floating_point_v<T>) {
    WriteTag(archive, PlainTag::kFloat);
    const double number = value;
    archive.Bytes(&number, sizeof number);
  } else if constexpr (PlainText<T>) {
    const std::string_view text(value);
    WriteTag(archive, PlainTag::kText);
    archive(std::uint64_t{text.size()});
    archive.Bytes(text.data(), text.size());
  } else if constexpr (S::kRef) {
    WriteTag(archive, PlainTag::kRef);
    archive(value);
  } else if constexpr (std::is_same_v<T, PyActorHandle>) {
    WriteTag(archive, PlainTag::kActor);
    archive(value);
  } else if constexpr (S::kOptional) {
    if (value.has_value()) {
      WritePlain(archive, *value);
    } else {
      WriteTag(archive, PlainTag::kNone);
    }
  } else if constexpr (S::kVariant) {
    std::visit([&](const auto& inner) { WritePlain(archive, inner); }, value);
  } else if constexpr (S::kTuple) {
    WriteTag(archive, PlainTag::kTuple);
    archive(static_cast<std::uint8_t>(std::tuple_size_v<T>));
    std::apply([&](const auto&... items) { (WritePlain(archive, items), ...); }, value);
  } else if constexpr (S::kTensor) {
    std::uint64_t count = 1;
    for (const std::uint64_t length : value.shape) count *= length;
    if (count != value.values.size() || value.shape.size() > 255)
      throw InvalidError("a Tensor's shape has " + std::to_string(count) + " elements, its values are " +
                         std::to_string(value.values.size()));
    WritePlainArray(archive, value.values.data(), value.shape);
  } else if constexpr (PlainMap<T>) {
    WriteTag(archive, PlainTag::kDict);
    archive(std::uint64_t{value.size()});
    archive.Enter();
    for (const auto& [key, item] : value) {
      WritePlain(archive, key);
      WritePlain(archive, item);
    }
    archive.Leave();
  } else if constexpr (std::is_same_v<typename T::value_type, std::byte>) {
    WriteTag(archive, PlainTag::kBytes);
    archive(std::uint64_t{value.size()});
    archive.Bytes(value.data(), value.size());
  } else if constexpr (PlainElement<typename T::value_type> && requires { value.data(); }) {
    const std::uint64_t shape[] = {value.size()};
    WritePlainArray(archive, value.data(), shape);
  } else {
    WriteTag(archive, PlainTag::kList);
    archive(std::uint64_t{value.size()});
    archive.Enter();
    for (const auto& item : value) WritePlain<Archive, typename T::value_type>(archive, item);
    archive.Leave();
  }
}

// ---- reading ----

inline PlainTag ReadTag(Reader& reader) {
  std::uint8_t tag = 0;
  reader.Bytes(&tag, 1);
  return static_cast<PlainTag>(tag);
}
inline PlainTag PeekTag(const Reader& reader) {
  Reader ahead = reader;
  return ReadTag(ahead);
}

struct PlainArrayHead {
  char kind = 0;
  std::uint8_t item = 0;
  std::vector<std::uint64_t> shape;
  std::uint64_t count = 1;
  const std::byte* data = nullptr;
};
inline PlainArrayHead ReadArrayHead(Reader& reader) {  // the tag is read
  PlainArrayHead head;
  std::uint8_t dimensions = 0;
  reader.Bytes(&head.kind, 1);
  reader.Bytes(&head.item, 1);
  reader.Bytes(&dimensions, 1);
  head.shape.resize(dimensions);
  for (std::uint64_t& length : head.shape) {
    reader.Bytes(&length, sizeof length);
    if (length != 0 && head.count > UINT64_MAX / length) reader.Fail("an array's shape makes no sense");
    head.count *= length;
  }
  reader.Align();
  if (head.item == 0 || head.count > reader.left() / head.item) reader.Fail("an array is cut off");
  head.data = reader.Take(static_cast<std::size_t>(head.count) * head.item);
  return head;
}

// Elements of the array as T where nothing is lost by it. `use` is called with each.
template <typename T, typename Use>
void ConvertElements(const PlainArrayHead& head, Use use) {
  const auto each = [&]<typename F>(F) {
    for (std::uint64_t i = 0; i < head.count; ++i) {
      F element;
      std::memcpy(&element, head.data + i * sizeof(F), sizeof element);
      use(static_cast<T>(element));
    }
  };
  constexpr bool kFloating = std::is_floating_point_v<T>;
  constexpr bool kSigned = std::is_signed_v<T>;
  if (head.kind == 'i' && (kFloating || (kSigned && sizeof(T) >= head.item))) {
    if (head.item == 1) return each(std::int8_t{});
    if (head.item == 2) return each(std::int16_t{});
    if (head.item == 4) return each(std::int32_t{});
    if (head.item == 8) return each(std::int64_t{});
  }
  if (head.kind == 'u' && (kFloating || sizeof(T) > head.item || (!kSigned && sizeof(T) == head.item))) {
    if (head.item == 1) return each(std::uint8_t{});
    if (head.item == 2) return each(std::uint16_t{});
    if (head.item == 4) return each(std::uint32_t{});
    if (head.item == 8) return each(std::uint64_t{});
  }
  if (head.kind == 'f' && kFloating && sizeof(T) >= head.item) {
    if (head.item == 4) return each(float{});
    if (head.item == 8) return each(double{});
  }
  throw InvalidError(std::string("an array of ") + head.kind + std::to_string(int{head.item}) +
                     " cannot be read as one of " + ElementKind<T>() + std::to_string(sizeof(T)) +
                     " without losing digits; convert it where it is made");
}

template <typename T>
Array<T> TakeArray(Reader& reader, const PlainArrayHead& head) {
  if (head.kind != ElementKind<T>() || head.item != sizeof(T)) {
    if constexpr (PlainNumber<T>) {
      std::vector<T> values;
      values.reserve(static_cast<std::size_t>(head.count));
      ConvertElements<T>(head, [&](T element) { values.push_back(element); });
      return Array<T>(std::move(values));
    } else {
      ThrowNotReadable(PlainTag::kArray, "an array of this type");
    }
  }
  const auto count = static_cast<std::size_t>(head.count);
  if (std::is_same_v<T, bool> || reader.keep() == nullptr || !IsAligned<T>(head.data))
    return Array<T>::Copy(head.data, count);
  return Array<T>::View({reinterpret_cast<const T*>(head.data), count}, *reader.keep());
}

template <typename T>
inline constexpr bool kNeverPlain = false;
template <typename T>
T ReadPlain(Reader& reader);
template <typename T>
T ReadPlainSequence(Reader& reader, PlainTag tag);

// Could ReadPlain<T> read a value with this tag? For variants.
template <typename T>
bool PlainAccepts(PlainTag tag) {
  using S = PlainShape<T>;
  if constexpr (PlainCodec<T>)
    return tag == PlainTag::kArrow;
  else if constexpr (std::is_same_v<T, bool>)
    return tag == PlainTag::kTrue || tag == PlainTag::kFalse;
  else if constexpr (std::is_integral_v<T>)
    return tag == PlainTag::kInt || tag == PlainTag::kUInt;
  else if constexpr (std::is_floating_point_v<T>)
    return tag == PlainTag::kFloat;
  else if constexpr (PlainText<T>)
    return tag == PlainTag::kText;
  else if constexpr (std::is_same_v<T, std::monostate>)
    return tag == PlainTag::kNone;
  else if constexpr (S::kRef)
    return tag == PlainTag::kRef;
  else if constexpr (std::is_same_v<T, PyActorHandle>)
    return tag == PlainTag::kActor;
  else if constexpr (S::kOptional)
    return tag == PlainTag::kNone || PlainAccepts<typename S::Value>(tag);
  else if constexpr (PlainMap<T>)
    return tag == PlainTag::kDict;
  else if constexpr (S::kTensor || S::kArray)
    return tag == PlainTag::kArray;
  else if constexpr (S::kTuple)
    return tag == PlainTag::kTuple || tag == PlainTag::kList;
  else
    return tag == PlainTag::kList || tag == PlainTag::kTuple || tag == PlainTag::kArray || tag == PlainTag::kBytes;
}

template <typename... T>
std::variant<T...> ReadPlainVariant(Reader& reader, const std::variant<T...>*) {
  const PlainTag tag = PeekTag(reader);
  std::optional<std::variant<T...>> out;
  (void)((PlainAccepts<T>(tag) && (out.emplace(ReadPlain<T>(reader)), true)) || ...);
  if (!out) ThrowNotReadable(tag, "any alternative of the variant");
  return std::move(*out);
}

template <typename T>
T ReadPlain(Reader& reader) {
  using S = PlainShape<T>;
  if constexpr (PlainCodec<T>) {
    return Codec<T>::Read(reader);
  } else if constexpr (S::kOptional) {
    if (PeekTag(reader) == PlainTag::kNone) {
      ReadTag(reader);
      return std::nullopt;
    }
    return ReadPlain<typename S::Value>(reader);
  } else if constexpr (S::kVariant) {
    return ReadPlainVariant(reader, static_cast<const T*>(nullptr));
  } else {
    const PlainTag tag = ReadTag(reader);
    if constexpr (std::is_same_v<T, bool>) {
      if (tag != PlainTag::kTrue && tag != PlainTag::kFalse) ThrowNotReadable(tag, "bool");
      return tag == PlainTag::kTrue;
    } else if constexpr (std::is_same_v<T, std::monostate>) {
      if (tag != PlainTag::kNone) ThrowNotReadable(tag, "nothing");
      return {};
    } else if constexpr (PlainNumber<T>) {
      std::uint64_t word = 0;
      if (tag == PlainTag::kFloat && std::is_floating_point_v<T>) {
        double number = 0;
        reader.Bytes(&number, sizeof number);
        return static_cast<T>(number);
      }
      if (tag != PlainTag::kInt && tag != PlainTag::kUInt)
        ThrowNotReadable(tag, std::is_floating_point_v<T> ? "a floating-point number" : "an integer");
      reader.Bytes(&word, sizeof word);
      const auto number = static_cast<std::int64_t>(word);
      if constexpr (std::is_floating_point_v<T>) {
        return tag == PlainTag::kUInt ? static_cast<T>(word) : static_cast<T>(number);
      } else {
        const bool fits = tag == PlainTag::kUInt ? word <= static_cast<std::uint64_t>(std::numeric_limits<T>::max())
                                                 : std::in_range<T>(number);
        if (!fits)
          throw InvalidError((tag == PlainTag::kUInt ? std::to_string(word) : std::to_string(number)) +
                             " does not fit an integer of " + std::to_string(sizeof(T)) + " bytes");
        return static_cast<T>(word);
      }
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (tag != PlainTag::kText && tag != PlainTag::kBytes) ThrowNotReadable(tag, "text");
      const std::size_t count = reader.Count(1);
      return std::string(reinterpret_cast<const char*>(reader.Take(count)), count);
    } else if constexpr (PlainText<T>) {
      static_assert(kNeverPlain<T>, "manta: nobody would own this text; take a std::string");
    } else if constexpr (S::kRef) {
      if (tag != PlainTag::kRef) ThrowNotReadable(tag, "a Ref");
      return reader.Read<T>();
    } else if constexpr (std::is_same_v<T, PyActorHandle>) {
      if (tag != PlainTag::kActor) ThrowNotReadable(tag, "an actor's handle");
      return reader.Read<T>();
    } else if constexpr (S::kTuple) {
      std::uint64_t count = 0;
      if (tag == PlainTag::kTuple) {
        count = static_cast<std::uint64_t>(*reader.Take(1));
      } else if (tag == PlainTag::kList) {
        count = reader.Count(1);
      } else {
        ThrowNotReadable(tag, "a tuple");
      }
      if (count != std::tuple_size_v<T>)
        throw InvalidError("a tuple of " + std::to_string(count) + " values cannot be read as one of " +
                           std::to_string(std::tuple_size_v<T>));
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return T{ReadPlain<std::remove_cv_t<std::tuple_element_t<I, T>>>(reader)...};  // braces: left to right
      }(std::make_index_sequence<std::tuple_size_v<T>>());
    } else if constexpr (S::kTensor) {
      if (tag != PlainTag::kArray) ThrowNotReadable(tag, "an array");
      PlainArrayHead head = ReadArrayHead(reader);
      Array<typename S::Value> values = TakeArray<typename S::Value>(reader, head);
      return T{std::move(head.shape), std::move(values)};
    } else if constexpr (PlainMap<T>) {
      if (tag != PlainTag::kDict) ThrowNotReadable(tag, "a map");
      const std::size_t count = reader.Count(2);
      T items;
      reader.Enter();
      for (std::size_t i = 0; i < count; ++i) {
        auto key = ReadPlain<typename T::key_type>(reader);
        items.insert_or_assign(std::move(key), ReadPlain<typename T::mapped_type>(reader));
      }
      reader.Leave();
      return items;
    } else {
      return ReadPlainSequence<T>(reader, tag);
    }
  }
}

template <typename T>
T ReadPlainSequence(Reader& reader, PlainTag tag) {
  using V = std::remove_cv_t<typename T::value_type>;
  if constexpr (std::is_same_v<V, std::byte>) {
    if (tag != PlainTag::kBytes) ThrowNotReadable(tag, "bytes");
    const std::size_t count = reader.Count(1);
    const std::byte* from = reader.Take(count);
    if constexpr (PlainShape<T>::kArray) {
      return reader.keep() == nullptr ? T::Copy(from, count) : T::View({from, count}, *reader.keep());
    } else {
      return T(from, from + count);
    }
  } else {
    if constexpr (PlainElement<V>) {
      if (tag == PlainTag::kArray) {
        const PlainArrayHead head = ReadArrayHead(reader);
        if (head.shape.size() != 1)
          throw InvalidError("an array of " + std::to_string(head.shape.size()) +
                             " dimensions came where one is expected: take a manta::Tensor");
        const Array<V> values = TakeArray<V>(reader, head);
        if constexpr (PlainShape<T>::kArray) {
          return values;
        } else {
          return T(values.begin(), values.end());
        }
      }
    }
    std::size_t count = 0;
    if (tag == PlainTag::kList) {
      count = reader.Count(1);
    } else if (tag == PlainTag::kTuple) {
      count = static_cast<std::size_t>(*reader.Take(1));
    } else {
      ThrowNotReadable(tag, "a list");
    }
    std::conditional_t<PlainShape<T>::kArray, std::vector<V>, T> items;
    reader.Enter();
    for (std::size_t i = 0; i < count; ++i) {
      if constexpr (!PlainType<V>()) {
        ThrowNotReadable(tag, "an array of complex numbers");
      } else if constexpr (requires { items.push_back(ReadPlain<V>(reader)); }) {
        items.push_back(ReadPlain<V>(reader));
      } else {
        items.insert(ReadPlain<V>(reader));
      }
    }
    reader.Leave();
    if constexpr (PlainShape<T>::kArray) {
      return T(std::span<const V>(items));
    } else {
      return items;
    }
  }
}

// A whole blob, which may be a pickle.
template <typename T>
T ReadPlainWhole(Reader& reader) {
  if (reader.position() == 0 && reader.left() > 0 && PeekTag(reader) == PlainTag::kPickle) {
    const std::size_t size = reader.left();
    const View pickle{reader.Take(size), size};
    KeepAlive keep;
    const View plain = PlainOfPickle(pickle, &keep);
    Reader inner(plain.bytes(), &keep, reader.copies());
    T value = ReadPlain<T>(inner);
    inner.ExpectEnd();
    return value;
  }
  return ReadPlain<T>(reader);
}

}  // namespace internal
}  // namespace manta
