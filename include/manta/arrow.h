// ArrowBatch is an Arrow record batch (or any Arrow array) that can be put, got, passed to tasks and read by Python,
// where it is a pyarrow.RecordBatch; a Table of Python's is an ArrowTable. What lies in the store is read in place: the
// columns that Export gives to an Arrow library look at shared memory, read-only, which stays as long as somebody holds
// them.
//
// No Arrow library is needed: both ends speak the Arrow C data interface, whose two structs are declared here (unless
// Arrow's own abi.h was). Copies are cheap and share the data. Const methods may be called from any thread.
#pragma once

#if __cplusplus < 202002L
#include "manta/internal/needs_cpp20.h"
#endif

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "manta/codec.h"
#include "manta/internal/export.h"

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4
extern "C" {
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};
}
#endif  // ARROW_C_DATA_INTERFACE

namespace manta {

namespace internal {

// A schema and batches of it, owned.
struct ArrowData {
  ArrowSchema schema{};
  std::vector<ArrowArray> batches;
  bool table = false;

  ArrowData() = default;
  ArrowData(const ArrowData&) = delete;
  ArrowData& operator=(const ArrowData&) = delete;
  MANTA_EXPORT ~ArrowData();
};
// Throw InvalidError for a type that is not known.
[[nodiscard]] MANTA_EXPORT std::size_t ArrowSize(const ArrowData& data);
MANTA_EXPORT void ArrowWrite(const ArrowData& data, std::span<std::byte> out);
// Looks at `bytes`, which `keep` keeps; without it they are copied. Throws CorruptError.
[[nodiscard]] MANTA_EXPORT std::shared_ptr<const ArrowData> ArrowRead(std::span<const std::byte> bytes,
                                                                      const KeepAlive& keep);
// Copies of the structs for somebody who imports, and so takes over, them; the buffers are shared.
MANTA_EXPORT void ArrowExport(const std::shared_ptr<const ArrowData>& data, ArrowSchema* schema);
MANTA_EXPORT void ArrowExport(const std::shared_ptr<const ArrowData>& data, std::size_t batch, ArrowArray* array);

}  // namespace internal

class ArrowBatch {
 public:
  ArrowBatch() = default;  // none: cannot be sent
  // Takes over both, as an Arrow library exported them.
  ArrowBatch(ArrowSchema* schema, ArrowArray* array) {
    auto data = std::make_shared<internal::ArrowData>();
    data->schema = std::exchange(*schema, ArrowSchema{});
    data->batches.push_back(std::exchange(*array, ArrowArray{}));
    data_ = std::move(data);
  }
  explicit ArrowBatch(std::shared_ptr<const internal::ArrowData> data) : data_(std::move(data)) {}

  [[nodiscard]] bool empty() const { return data_ == nullptr; }
  // To look at, not to release.
  [[nodiscard]] const ArrowSchema& schema() const { return data_->schema; }
  [[nodiscard]] const ArrowArray& array() const { return data_->batches.front(); }
  [[nodiscard]] std::int64_t rows() const { return array().length; }
  // For an Arrow library to import: arrow::ImportRecordBatch(&array, &schema).
  void Export(ArrowSchema* schema, ArrowArray* array) const {
    internal::ArrowExport(data_, schema);
    internal::ArrowExport(data_, 0, array);
  }
  [[nodiscard]] const std::shared_ptr<const internal::ArrowData>& data() const { return data_; }

 private:
  std::shared_ptr<const internal::ArrowData> data_;
};

// A schema and any number of batches of it.
class ArrowTable {
 public:
  ArrowTable() = default;
  ArrowTable(ArrowSchema* schema, std::vector<ArrowArray>&& batches) {
    auto data = std::make_shared<internal::ArrowData>();
    data->schema = std::exchange(*schema, ArrowSchema{});
    data->batches = std::move(batches);
    data->table = true;
    data_ = std::move(data);
  }
  explicit ArrowTable(std::shared_ptr<const internal::ArrowData> data) : data_(std::move(data)) {}

  [[nodiscard]] bool empty() const { return data_ == nullptr; }
  [[nodiscard]] const ArrowSchema& schema() const { return data_->schema; }
  [[nodiscard]] std::span<const ArrowArray> batches() const { return data_->batches; }
  [[nodiscard]] std::int64_t rows() const {
    std::int64_t sum = 0;
    for (const ArrowArray& batch : data_->batches) sum += batch.length;
    return sum;
  }
  void ExportSchema(ArrowSchema* schema) const { internal::ArrowExport(data_, schema); }
  void ExportBatch(std::size_t index, ArrowArray* array) const { internal::ArrowExport(data_, index, array); }
  [[nodiscard]] const std::shared_ptr<const internal::ArrowData>& data() const { return data_; }

 private:
  std::shared_ptr<const internal::ArrowData> data_;
};

namespace internal {

// Written and read as a whole value: its buffers are aligned to the start of the blob.
template <typename T>
struct ArrowCodec {
  static constexpr bool kPlain = true;  // Python reads it as it is (manta/plain.h)

  template <typename Archive>
  static void Write(Archive& archive, const T& value) {
    if (value.empty()) throw InvalidError("an ArrowBatch or ArrowTable without data cannot be sent");
    if (archive.position() != 0)
      throw InvalidError("an ArrowBatch or ArrowTable cannot be a part of another value: put it, and send its Ref");
    const std::size_t size = ArrowSize(*value.data());
    if constexpr (Archive::kCounting) {
      archive.Bytes(nullptr, size);
    } else {
      ArrowWrite(*value.data(), {archive.Claim(size), size});
    }
  }
  static T Read(Reader& reader) {
    const std::size_t size = reader.left();
    const KeepAlive none;
    return T(ArrowRead({reader.Take(size), size}, reader.keep() == nullptr ? none : *reader.keep()));
  }
};

}  // namespace internal

template <>
struct Codec<ArrowBatch> : internal::ArrowCodec<ArrowBatch> {};
template <>
struct Codec<ArrowTable> : internal::ArrowCodec<ArrowTable> {};

}  // namespace manta
