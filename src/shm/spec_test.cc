#include "shm/spec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace manta::shm {
namespace {

// A spec as an owner writes it, word by word.
class Spec {
 public:
  explicit Spec(std::string name = "") {
    header.name_bytes = static_cast<std::uint16_t>(name.size());
    name.resize(Padded(name.size()));
    body_ = name;
  }
  Spec& Word(std::uint64_t word) {
    body_.append(reinterpret_cast<const char*>(&word), 8);
    return *this;
  }
  Spec& Value(std::string text) {
    Word(ItemWord(ItemKind::kValue, text.size()));
    text.resize(Padded(text.size()));
    body_ += text;
    return *this;
  }
  // Exactly these bytes and nothing behind them. `bytes` is what the header claims; 0: the truth.
  [[nodiscard]] std::vector<std::byte> Written(std::uint32_t bytes = 0) {
    header.bytes = bytes != 0 ? bytes : static_cast<std::uint32_t>(sizeof header + body_.size());
    std::vector<std::byte> out(sizeof header + body_.size());
    std::memcpy(out.data(), &header, sizeof header);
    if (!body_.empty()) std::memcpy(out.data() + sizeof header, body_.data(), body_.size());
    return out;
  }

  SpecHeader header;

 private:
  std::string body_;
};

Code CodeOfOpening(const std::vector<std::byte>& bytes) {
  return SpecReader::Open(bytes.data(), bytes.size()).status().code();
}
// Of the first item that does not read.
Code CodeOfReading(const std::vector<std::byte>& bytes) {
  Result<SpecReader> reader = SpecReader::Open(bytes.data(), bytes.size());
  EXPECT_TRUE(reader.ok());
  Code code = Code::kOk;
  while (code == Code::kOk) code = reader->Next().status().code();
  return code;
}
std::string TextOf(const SpecReader::Item& item) {
  return {reinterpret_cast<const char*>(item.data), static_cast<std::size_t>(item.length)};
}

TEST(SpecReader, ReadsBackItsNameAndItsArgumentsInOrder) {
  Spec spec("fold");
  spec.header.id = Id{7, 9};
  StoredItem stored;
  stored.object = Id{1, 2};
  spec.Value("eleven char").Value("").Word(ItemWord(ItemKind::kList, 2)).Value("a").Value("12345678");
  spec.Word(ItemWord(ItemKind::kStored, sizeof stored));
  const auto* words = reinterpret_cast<const std::uint64_t*>(&stored);
  for (std::size_t i = 0; i < sizeof stored / 8; ++i) spec.Word(words[i]);
  const std::vector<std::byte> bytes = spec.Written();
  Result<SpecReader> reader = SpecReader::Open(bytes.data(), bytes.size());
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->name(), "fold");
  EXPECT_EQ(reader->header().id, (Id{7, 9}));
  EXPECT_EQ(TextOf(*reader->Next()), "eleven char");
  EXPECT_EQ(TextOf(*reader->Next()), "");
  EXPECT_EQ(reader->Peek()->kind, ItemKind::kList);
  EXPECT_EQ(reader->Next()->length, 2U);
  EXPECT_EQ(TextOf(*reader->Next()), "a");
  EXPECT_EQ(TextOf(*reader->Next()), "12345678");
  Result<SpecReader::Item> last = reader->Next();
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->kind, ItemKind::kStored);
  StoredItem read;
  std::memcpy(&read, last->data, sizeof read);
  EXPECT_EQ(read.object, (Id{1, 2}));
  EXPECT_EQ(reader->Next().status().code(), Code::kCorrupt);  // and no more
}

TEST(SpecReader, RefusesASpecThatIsCutOffAnywhere) {
  const std::vector<std::byte> whole = Spec("name").Value("some").Value("thing").Written();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_EQ(CodeOfOpening(cut), Code::kCorrupt) << length;
  }
  EXPECT_EQ(CodeOfOpening(whole), Code::kOk);
}

TEST(SpecReader, RefusesALengthThatCannotBe) {
  Spec spec("name");
  spec.Value("some");
  const auto size = static_cast<std::uint32_t>(spec.Written().size());
  for (const std::uint32_t wrong : {8U, 71U, 72U, size - 1, size + 1, size + 8, 0xfffffff8U, 0xffffffffU}) {
    EXPECT_EQ(CodeOfOpening(spec.Written(wrong)), Code::kCorrupt) << wrong;
  }
  std::vector<std::byte> zero = spec.Written();
  std::memset(zero.data(), 0, 4);
  EXPECT_EQ(CodeOfOpening(zero), Code::kCorrupt);
}

TEST(SpecReader, RefusesANameThatIsLongerThanTheSpec) {
  Spec spec;
  spec.Word(0);
  spec.header.name_bytes = 9;
  EXPECT_EQ(CodeOfOpening(spec.Written()), Code::kCorrupt);
  spec.header.name_bytes = 0xffff;
  EXPECT_EQ(CodeOfOpening(spec.Written()), Code::kCorrupt);
  spec.header.name_bytes = 8;  // all of the rest
  EXPECT_EQ(CodeOfOpening(spec.Written()), Code::kOk);
}

TEST(SpecReader, ReadsNoItemBeyondALengthThatIsTooShort) {
  Spec spec;
  spec.Value("first").Value("second");
  const std::vector<std::byte> bytes = spec.Written(sizeof(SpecHeader) + 16);
  Result<SpecReader> reader = SpecReader::Open(bytes.data(), bytes.size());
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(TextOf(*reader->Next()), "first");
  EXPECT_EQ(reader->Next().status().code(), Code::kCorrupt);
}

TEST(SpecReader, RefusesAValueThatIsLongerThanTheRest) {
  for (const std::uint64_t length : {17ULL, 24ULL, 1ULL << 32, (1ULL << 56) - 8, (1ULL << 56) - 1}) {
    Spec spec;
    spec.Word(ItemWord(ItemKind::kValue, length)).Word(1).Word(2);
    EXPECT_EQ(CodeOfReading(spec.Written()), Code::kCorrupt) << length;
  }
  Spec spec;
  spec.Word(ItemWord(ItemKind::kValue, 16)).Word(1).Word(2);
  const std::vector<std::byte> bytes = spec.Written();
  EXPECT_TRUE(SpecReader::Open(bytes.data(), bytes.size())->Next().ok());
}

TEST(SpecReader, RefusesAListOfMoreItemsThanTheRestHasRoomFor) {
  for (const std::uint64_t items : {3ULL, 1ULL << 53, (1ULL << 56) - 1}) {
    Spec spec;
    spec.Word(ItemWord(ItemKind::kList, items)).Value("").Value("");
    const std::vector<std::byte> bytes = spec.Written();
    EXPECT_EQ(SpecReader::Open(bytes.data(), bytes.size())->Next().status().code(), Code::kCorrupt) << items;
  }
}

TEST(SpecReader, RefusesUnknownKindsAndPlacesOfTheWrongSize) {
  for (const std::uint64_t kind : {0ULL, 4ULL, 5ULL, 255ULL}) {
    EXPECT_EQ(CodeOfReading(Spec().Word(kind << 56).Written()), Code::kCorrupt) << kind;
  }
  for (const std::size_t length : {std::size_t{0}, sizeof(StoredItem) - 8, sizeof(StoredItem) + 8}) {
    Spec spec;
    spec.Word(ItemWord(ItemKind::kStored, length));
    for (std::size_t i = 0; i < sizeof(StoredItem) / 8 + 1; ++i) spec.Word(0);
    EXPECT_EQ(CodeOfReading(spec.Written()), Code::kCorrupt) << length;
  }
}

TEST(SpecReader, StaysWhereItWasAfterAnItemThatDoesNotRead) {
  const std::vector<std::byte> bytes = Spec().Word(99ULL << 56).Value("behind").Written();
  Result<SpecReader> reader = SpecReader::Open(bytes.data(), bytes.size());
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE(reader->Next().ok());
  EXPECT_FALSE(reader->Next().ok());
}

}  // namespace
}  // namespace manta::shm
