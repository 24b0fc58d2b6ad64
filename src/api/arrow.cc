// Arrow record batches as bytes: a tree of schema nodes, for each batch a tree of array nodes, then all buffers, each
// at a multiple of 64 from the start.
//
//   head      tag (kArrow), 1 if it is a table, 2 bytes unused, count of batches (4)
//   schema    format, name, metadata (each: its length (4), its bytes, a zero byte; length -1: null), flags (8),
//             count of children (4), the children, 1 if there is a dictionary (1), the dictionary's
//   array     length, null count, offset (8 each), count of buffers (4), for each its position from the start (0: null)
//             and length (8 each), count of children (4), the children, 1 and the dictionary's, or 0
//
// The C data interface does not say how long a buffer is: that follows from the format (BufferBytes).
#include "manta/arrow.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "manta/internal/copy.h"
#include "manta/internal/plain_codec.h"
#include "types/text.h"

namespace manta::internal {
namespace {

constexpr std::size_t kAlign = 64;
constexpr int kMostDepth = 64;
constexpr std::uint32_t kNull = 0xffffffffU;

std::size_t Aligned(std::size_t at) { return (at + kAlign - 1) & ~(kAlign - 1); }

// Bits of one element of a type without children or variable length; -1: it is another type.
std::int64_t FixedBits(std::string_view format) {
  switch (format[0]) {
    case 'b':
      return 1;
    case 'c':
    case 'C':
      return 8;
    case 's':
    case 'S':
    case 'e':
      return 16;
    case 'i':
    case 'I':
    case 'f':
      return 32;
    case 'l':
    case 'L':
    case 'g':
      return 64;
    case 'w':
      return std::atoll(format.data() + 2) * 8;
    case 'd': {  // d:precision,scale[,bits]
      const std::size_t second = format.find(',', format.find(',') + 1);
      return second == std::string_view::npos ? 128 : std::atoll(format.data() + second + 1);
    }
    case 't':
      if (format == "tdD" || format == "tts" || format == "ttm" || format == "tiM") return 32;
      return format == "tin" ? 128 : 64;
    default:
      return -1;
  }
}

std::size_t BitmapBytes(std::int64_t n) { return static_cast<std::size_t>((n + 7) / 8); }

template <typename Offset>
std::size_t LastOffset(const void* offsets, std::int64_t n) {
  if (offsets == nullptr || n == 0) return 0;
  return static_cast<std::size_t>(static_cast<const Offset*>(offsets)[n]);
}

std::size_t BufferBytes(const ArrowSchema& schema, const ArrowArray& array, std::int64_t index) {
  const std::string_view format(schema.format);
  const std::int64_t n = array.offset + array.length;
  const auto count = static_cast<std::size_t>(n);
  if (const std::int64_t bits = FixedBits(format); bits >= 0) {
    return index == 0 ? BitmapBytes(n) : (count * static_cast<std::size_t>(bits) + 7) / 8;
  }
  const bool is_union = format.starts_with("+u");
  if (index == 0 && !is_union) return BitmapBytes(n);
  if (format == "u" || format == "z") {
    return index == 1 ? (count + 1) * 4 : LastOffset<std::int32_t>(array.buffers[1], n);
  }
  if (format == "U" || format == "Z") {
    return index == 1 ? (count + 1) * 8 : LastOffset<std::int64_t>(array.buffers[1], n);
  }
  if (format == "vu" || format == "vz") {
    const std::int64_t last = array.n_buffers - 1;  // how long the others are
    if (index == 1) return count * 16;
    if (index == last) return static_cast<std::size_t>(array.n_buffers - 3) * 8;
    return static_cast<std::size_t>(static_cast<const std::int64_t*>(array.buffers[last])[index - 2]);
  }
  if (format == "+l" || format == "+m") return (count + 1) * 4;
  if (format == "+L") return (count + 1) * 8;
  if (format == "+vl") return count * 4;
  if (format == "+vL") return count * 8;
  if (is_union) return index == 0 ? count : count * 4;
  throw InvalidError(Cat("Arrow's type '", schema.format, "' is not known to Manta: cast the column"));
}

// Offsets of nothing may be missing, but then a reader would look for them.
bool HasOffsets(std::string_view format, std::int64_t index) {
  return index == 1 && (format == "u" || format == "z" || format == "U" || format == "Z" || format == "+l" ||
                        format == "+m" || format == "+L");
}

std::size_t MetadataBytes(const char* metadata) {
  const auto number = [&](std::size_t at) {
    std::int32_t value = 0;
    std::memcpy(&value, metadata + at, sizeof value);
    return value;
  };
  std::size_t at = 4;
  for (std::int32_t pairs = number(0) * 2; pairs > 0; --pairs) at += 4 + static_cast<std::size_t>(number(at));
  return at;
}

// Counts with out == nullptr, else writes: the same walk.
class Walk {
 public:
  explicit Walk(std::byte* out) : out_(out) {}
  [[nodiscard]] std::size_t position() const { return at_; }

  void Put(const void* from, std::size_t n) {
    if (out_ != nullptr && n != 0) std::memcpy(out_ + at_, from, n);
    at_ += n;
  }
  template <typename T>
  void Number(T value) {
    Put(&value, sizeof value);
  }
  void Text(const char* text, std::size_t length) {
    Number(text == nullptr ? kNull : static_cast<std::uint32_t>(length));
    if (text == nullptr) return;
    Put(text, length);
    Number(std::uint8_t{0});
  }

  void Schema(const ArrowSchema& node, int depth) {
    if (depth > kMostDepth) throw InvalidError("an Arrow schema is nested too deep");
    Text(node.format, std::strlen(node.format));
    Text(node.name, node.name == nullptr ? 0 : std::strlen(node.name));
    Text(node.metadata, node.metadata == nullptr ? 0 : MetadataBytes(node.metadata));
    Number(node.flags);
    Number(static_cast<std::uint32_t>(node.n_children));
    for (std::int64_t i = 0; i < node.n_children; ++i) Schema(*node.children[i], depth + 1);
    Number(static_cast<std::uint8_t>(node.dictionary != nullptr));
    if (node.dictionary != nullptr) Schema(*node.dictionary, depth + 1);
  }

  // `data` walks behind: buffers come after all nodes.
  void Array(const ArrowSchema& schema, const ArrowArray& node, std::vector<std::pair<const void*, std::size_t>>* later,
             std::vector<std::size_t>* places) {
    Number(node.length);
    Number(node.null_count);
    Number(node.offset);
    Number(static_cast<std::uint32_t>(node.n_buffers));
    for (std::int64_t i = 0; i < node.n_buffers; ++i) {
      const std::size_t bytes = BufferBytes(schema, node, i);
      const bool missing = node.buffers[i] == nullptr;
      const bool zeros = HasOffsets(schema.format, i) && (missing || node.offset + node.length == 0);
      places->push_back(at_);
      later->emplace_back(missing || zeros ? nullptr : node.buffers[i], missing && !zeros ? SIZE_MAX : bytes);
      Number(std::uint64_t{0});
      Number(std::uint64_t{missing && !zeros ? 0 : bytes});
    }
    Number(static_cast<std::uint32_t>(node.n_children));
    for (std::int64_t i = 0; i < node.n_children; ++i) Array(*schema.children[i], *node.children[i], later, places);
    Number(static_cast<std::uint8_t>(node.dictionary != nullptr));
    if (node.dictionary != nullptr) Array(*schema.dictionary, *node.dictionary, later, places);
  }

  void Buffer(std::size_t place, const void* data, std::size_t bytes) {
    const std::size_t start = Aligned(at_);
    if (out_ != nullptr) {
      std::memset(out_ + at_, 0, start - at_);
      const std::uint64_t position = start;
      std::memcpy(out_ + place, &position, sizeof position);
      if (data == nullptr) {
        std::memset(out_ + start, 0, bytes);
      } else if (bytes >= kCopyLargeFrom) {
        CopyLarge(out_ + start, static_cast<const std::byte*>(data), bytes);
      } else if (bytes != 0) {
        std::memcpy(out_ + start, data, bytes);
      }
    }
    at_ = start + bytes;
  }

 private:
  std::byte* out_;
  std::size_t at_ = 0;
};

std::size_t WalkAll(const ArrowData& data, std::byte* out) {
  if (data.schema.format == nullptr) throw InvalidError("an Arrow batch without a schema cannot be sent");
  Walk walk(out);
  walk.Number(static_cast<std::uint8_t>(PlainTag::kArrow));
  walk.Number(static_cast<std::uint8_t>(data.table));
  walk.Number(std::uint16_t{0});
  walk.Number(static_cast<std::uint32_t>(data.batches.size()));
  walk.Schema(data.schema, 0);
  std::vector<std::pair<const void*, std::size_t>> later;
  std::vector<std::size_t> places;
  for (const ArrowArray& batch : data.batches) walk.Array(data.schema, batch, &later, &places);
  for (std::size_t i = 0; i < later.size(); ++i) {
    if (later[i].second != SIZE_MAX) walk.Buffer(places[i], later[i].first, later[i].second);
  }
  return walk.position();
}

// ---- structs for consumers: each node owns its children, unless they were moved out ----

struct SchemaNode {
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> pointers;
  ArrowSchema dictionary{};
  KeepAlive keep;  // of the texts
};
void ReleaseSchema(ArrowSchema* schema) {
  auto* node = static_cast<SchemaNode*>(schema->private_data);
  for (ArrowSchema& child : node->children) {
    if (child.release != nullptr) child.release(&child);
  }
  if (node->dictionary.release != nullptr) node->dictionary.release(&node->dictionary);
  delete node;
  schema->release = nullptr;
}
struct ArrayNode {
  std::vector<const void*> buffers;
  std::vector<ArrowArray> children;
  std::vector<ArrowArray*> pointers;
  ArrowArray dictionary{};
  KeepAlive keep;  // of the buffers
};
void ReleaseArray(ArrowArray* array) {
  auto* node = static_cast<ArrayNode*>(array->private_data);
  for (ArrowArray& child : node->children) {
    if (child.release != nullptr) child.release(&child);
  }
  if (node->dictionary.release != nullptr) node->dictionary.release(&node->dictionary);
  delete node;
  array->release = nullptr;
}

// Points the struct at what its node has. The vectors must not grow any more.
void Wire(ArrowSchema* schema, SchemaNode* node) {
  for (ArrowSchema& child : node->children) node->pointers.push_back(&child);
  schema->n_children = static_cast<std::int64_t>(node->children.size());
  schema->children = node->pointers.empty() ? nullptr : node->pointers.data();
  schema->dictionary = node->dictionary.format == nullptr ? nullptr : &node->dictionary;
  schema->release = &ReleaseSchema;
  schema->private_data = node;
}
void Wire(ArrowArray* array, ArrayNode* node) {
  for (ArrowArray& child : node->children) node->pointers.push_back(&child);
  array->n_buffers = static_cast<std::int64_t>(node->buffers.size());
  array->buffers = node->buffers.data();
  array->n_children = static_cast<std::int64_t>(node->children.size());
  array->children = node->pointers.empty() ? nullptr : node->pointers.data();
  array->dictionary = node->dictionary.release == nullptr ? nullptr : &node->dictionary;
  array->release = &ReleaseArray;
  array->private_data = node;
}

void CopySchema(const ArrowSchema& from, const KeepAlive& keep, ArrowSchema* to) {
  auto* node = new SchemaNode();
  node->keep = keep;
  node->children.resize(static_cast<std::size_t>(from.n_children));
  for (std::size_t i = 0; i < node->children.size(); ++i) CopySchema(*from.children[i], keep, &node->children[i]);
  if (from.dictionary != nullptr) CopySchema(*from.dictionary, keep, &node->dictionary);
  *to = ArrowSchema{};
  to->format = from.format;
  to->name = from.name;
  to->metadata = from.metadata;
  to->flags = from.flags;
  Wire(to, node);
}

void CopyArray(const ArrowArray& from, const KeepAlive& keep, ArrowArray* to) {
  auto* node = new ArrayNode();
  node->keep = keep;
  node->buffers.assign(from.buffers, from.buffers + from.n_buffers);
  node->children.resize(static_cast<std::size_t>(from.n_children));
  for (std::size_t i = 0; i < node->children.size(); ++i) CopyArray(*from.children[i], keep, &node->children[i]);
  if (from.dictionary != nullptr) CopyArray(*from.dictionary, keep, &node->dictionary);
  *to = ArrowArray{};
  to->length = from.length;
  to->null_count = from.null_count;
  to->offset = from.offset;
  Wire(to, node);
}

// A consumer walks both trees side by side.
bool SameShape(const ArrowSchema& schema, const ArrowArray& array) {
  if (schema.n_children != array.n_children || (schema.dictionary == nullptr) != (array.dictionary == nullptr))
    return false;
  for (std::int64_t i = 0; i < schema.n_children; ++i) {
    if (!SameShape(*schema.children[i], *array.children[i])) return false;
  }
  return schema.dictionary == nullptr || SameShape(*schema.dictionary, *array.dictionary);
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, KeepAlive keep) : bytes_(bytes), reader_(bytes), keep_(std::move(keep)) {}

  template <typename T>
  T Number() {
    T value{};
    reader_.Bytes(&value, sizeof value);
    return value;
  }
  std::size_t Count(std::size_t least) {
    const auto count = Number<std::uint32_t>();
    if (count > reader_.left() / least) reader_.Fail("an Arrow count is larger than the bytes that follow");
    return count;
  }
  const char* Text() {
    const auto length = Number<std::uint32_t>();
    if (length == kNull) return nullptr;
    const auto* text = reinterpret_cast<const char*>(reader_.Take(std::size_t{length} + 1));
    if (text[length] != '\0') reader_.Fail("an Arrow name has no end");
    return text;
  }

  void Schema(ArrowSchema* out, int depth) {
    if (depth > kMostDepth) reader_.Fail("an Arrow schema is nested too deep");
    auto node = std::make_unique<SchemaNode>();
    node->keep = keep_;
    *out = ArrowSchema{};
    out->format = Text();
    if (out->format == nullptr || out->format[0] == '\0') reader_.Fail("an Arrow type is missing");
    out->name = Text();
    out->metadata = Text();
    out->flags = Number<std::int64_t>();
    // Whatever was made is released if a later part makes no sense.
    const std::size_t children = Count(20);
    node->children.resize(children);
    SchemaNode* raw = node.release();
    ArrowSchema unfinished = *out;
    unfinished.release = &ReleaseSchema;
    unfinished.private_data = raw;
    try {
      for (ArrowSchema& child : raw->children) Schema(&child, depth + 1);
      if (Number<std::uint8_t>() != 0) Schema(&raw->dictionary, depth + 1);
    } catch (...) {
      unfinished.release(&unfinished);
      out->release = nullptr;
      throw;
    }
    Wire(out, raw);
  }

  void Array(ArrowArray* out, int depth) {
    if (depth > kMostDepth) reader_.Fail("an Arrow array is nested too deep");
    *out = ArrowArray{};
    out->length = Number<std::int64_t>();
    out->null_count = Number<std::int64_t>();
    out->offset = Number<std::int64_t>();
    if (out->length < 0 || out->offset < 0) reader_.Fail("an Arrow array has a negative length");
    auto node = std::make_unique<ArrayNode>();
    node->keep = keep_;
    node->buffers.resize(Count(16));
    for (const void*& buffer : node->buffers) {
      const auto position = Number<std::uint64_t>();
      const auto length = Number<std::uint64_t>();
      if (position > bytes_.size() || length > bytes_.size() - position) reader_.Fail("an Arrow buffer is cut off");
      buffer = position == 0 ? nullptr : bytes_.data() + position;
    }
    node->children.resize(Count(33));
    ArrayNode* raw = node.release();
    ArrowArray unfinished{};
    unfinished.release = &ReleaseArray;
    unfinished.private_data = raw;
    try {
      for (ArrowArray& child : raw->children) Array(&child, depth + 1);
      if (Number<std::uint8_t>() != 0) Array(&raw->dictionary, depth + 1);
    } catch (...) {
      unfinished.release(&unfinished);
      throw;
    }
    Wire(out, raw);
  }

  std::shared_ptr<const ArrowData> All() {
    if (Number<std::uint8_t>() != static_cast<std::uint8_t>(PlainTag::kArrow))
      throw InvalidError("this value is no Arrow batch or table; was it made by something else?");
    auto data = std::make_shared<ArrowData>();
    data->table = Number<std::uint8_t>() != 0;
    static_cast<void>(Number<std::uint16_t>());
    const std::size_t batches = Count(33);
    if (!data->table && batches != 1) reader_.Fail("an Arrow batch is not one");
    Schema(&data->schema, 0);
    data->batches.resize(batches);
    for (ArrowArray& batch : data->batches) {
      Array(&batch, 0);
      if (!SameShape(data->schema, batch)) reader_.Fail("an Arrow array does not fit its schema");
    }
    return data;
  }

 private:
  std::span<const std::byte> bytes_;
  Reader reader_;
  KeepAlive keep_;
};

}  // namespace

ArrowData::~ArrowData() {
  if (schema.release != nullptr) schema.release(&schema);
  for (ArrowArray& batch : batches) {
    if (batch.release != nullptr) batch.release(&batch);
  }
}

std::size_t ArrowSize(const ArrowData& data) { return WalkAll(data, nullptr); }

void ArrowWrite(const ArrowData& data, std::span<std::byte> out) {
  if (ArrowSize(data) != out.size()) ThrowResized(out.size());
  WalkAll(data, out.data());
}

std::shared_ptr<const ArrowData> ArrowRead(std::span<const std::byte> bytes, const KeepAlive& keep) {
  if (keep != nullptr) return Parser(bytes, keep).All();
  const Array<std::byte> copy = Array<std::byte>::Copy(bytes.data(), bytes.size());
  auto owner = std::make_shared<const Array<std::byte>>(copy);
  return Parser(owner->span(), owner).All();
}

void ArrowExport(const std::shared_ptr<const ArrowData>& data, ArrowSchema* schema) {
  CopySchema(data->schema, data, schema);
}
void ArrowExport(const std::shared_ptr<const ArrowData>& data, std::size_t batch, ArrowArray* array) {
  CopyArray(data->batches.at(batch), data, array);
}

}  // namespace manta::internal
