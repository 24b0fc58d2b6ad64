// Records of lineage that a broken owner wrote: whatever the bytes, the decoder tells of things that lie inside them,
// then gives a Status, and comes to an end.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "lineage/record.h"

namespace {

class Reader final : public manta::lineage::Sink {
 public:
  void OnTask(const manta::lineage::TaskRecord& task) override {
    for (const std::byte byte : task.arguments) sum += std::to_integer<std::uint64_t>(byte);
    sum += task.function->name.size();
  }
  void OnOutcome(const manta::lineage::OutcomeRecord& outcome) override {
    for (const std::byte byte : outcome.value) sum += std::to_integer<std::uint64_t>(byte);
    for (const char c : outcome.message) sum += static_cast<unsigned char>(c);
  }
  std::uint64_t sum = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Exactly as large as the input, so that the sanitizer sees one byte too much.
  const std::unique_ptr<std::byte[]> copy(new std::byte[size]);
  if (size > 0) std::memcpy(copy.get(), data, size);
  manta::lineage::Decoder decoder;
  Reader reader;
  const manta::Status status = decoder.Read({copy.get(), size}, true, reader);
  if (status.ok() == decoder.lost()) __builtin_trap();
  volatile std::uint64_t keep = reader.sum;  // or the reads above would be left out
  static_cast<void>(keep);
  return 0;
}
