// Decodes arbitrary bytes as a value that contains nearly everything. What decodes must encode again, to
// exactly the size announced, and that must decode to the same bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "manta/codec.h"

namespace {

enum class Kind : std::uint8_t { kA, kB };
struct Padded {
  std::uint8_t kind = 0;
  double weight = 0;
};
struct Tree {
  std::string name;
  std::vector<Tree> children;
  std::unique_ptr<Tree> left;
};
class Account {
 public:
  MANTA_FIELDS(owner_, balance_)

 private:
  std::string owner_;
  double balance_ = 0;
};
struct Own {
  std::vector<std::uint32_t> numbers;
  template <typename Archive>
  void Serialize(Archive& archive) {
    archive(numbers);
  }
};
struct Everything {
  Kind kind{};
  bool yes = false;
  std::vector<std::string> texts;
  std::vector<double> doubles;
  std::vector<Padded> padded;
  std::map<std::string, std::vector<std::optional<int>>> map;
  std::variant<std::monostate, int, Account, Own> variant;
  Tree tree;
  manta::Array<float> floats;
  manta::Array<bool> bools;
  std::vector<bool> bits;
  std::span<const std::uint64_t> span;
  char name[16] = {};
  std::u16string wide;
  std::set<std::int16_t> set;
  long double precise = 0;
};

template <typename T>
std::vector<std::byte> ToBytes(const T& value) {
  std::vector<std::byte> bytes(manta::EncodedSize(value));
  manta::Encode(value, bytes);  // throws, and so fails, if the size is wrong
  return bytes;
}

void Try(std::span<const std::byte> bytes, const manta::KeepAlive& keep) {
  std::vector<manta::KeepAlive> copies;
  try {
    const auto value = manta::Decode<Everything>(bytes, keep, &copies);
    const std::vector<std::byte> again = ToBytes(value);
    if (again.size() != bytes.size()) std::abort();
    const auto second = manta::Decode<Everything>(again, keep, &copies);
    if (ToBytes(second) != again) std::abort();
  } catch (const manta::CorruptError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  Try(bytes, nullptr);                   // copies
  Try(bytes, std::make_shared<int>(0));  // views
  return 0;
}
