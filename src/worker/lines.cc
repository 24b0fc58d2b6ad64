#include "worker/lines.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace manta::worker {
namespace {

// Names of the DWARF standard, chapters 6.2 and 7.
enum Content : std::uint64_t { kPath = 1 };
enum Form : std::uint64_t {
  kData2 = 0x05,
  kData4 = 0x06,
  kData8 = 0x07,
  kString = 0x08,
  kBlock = 0x09,
  kData1 = 0x0b,
  kStrp = 0x0e,
  kUdata = 0x0f,
  kData16 = 0x1e,
  kLineStrp = 0x1f,
};

// Reads forward; behind the end everything is zero, and ok() says so.
class Reader {
 public:
  explicit Reader(std::span<const char> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool done() const { return !ok_ || bytes_.empty(); }

  std::span<const char> Take(std::uint64_t count) {
    if (count > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    const std::span<const char> taken = bytes_.first(static_cast<std::size_t>(count));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  std::uint64_t Fixed(std::size_t count) {  // little-endian, as all machines that Manta runs on
    const std::span<const char> taken = Take(count);
    std::uint64_t value = 0;
    std::memcpy(&value, taken.data(), std::min(taken.size(), sizeof value));
    return value;
  }
  std::uint64_t Unsigned() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(Fixed(1));
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
  }
  std::int64_t Signed() {
    std::uint64_t value = 0;
    unsigned shift = 0;
    unsigned char byte = 0;
    do {
      byte = static_cast<unsigned char>(Fixed(1));
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      shift += 7;
    } while ((byte & 0x80U) != 0);
    if (shift < 64 && (byte & 0x40U) != 0) value |= ~std::uint64_t{0} << shift;
    return static_cast<std::int64_t>(value);
  }
  std::string_view String() {
    const std::string_view text(bytes_.data(), strnlen(bytes_.data(), bytes_.size()));
    Take(text.size() + 1);
    return text;
  }

 private:
  std::span<const char> bytes_;
  bool ok_ = true;
};

std::string_view StringAt(std::span<const char> section, std::uint64_t offset) {
  if (offset >= section.size()) return {};
  const char* text = section.data() + offset;
  return {text, strnlen(text, section.size() - static_cast<std::size_t>(offset))};
}

// One table: its header, then the program that writes the rows.
class Table {
 public:
  Table(const LineSections& sections, std::span<const char> bytes, bool wide)
      : sections_(sections), reader_(bytes), offset_bytes_(wide ? 8 : 4) {
    version_ = static_cast<unsigned>(reader_.Fixed(2));
    if (version_ < 4 || version_ > 5) return;
    address_bytes_ = version_ == 5 ? static_cast<std::size_t>(reader_.Fixed(2) & 0xff) : 8;
    Reader header(reader_.Take(reader_.Fixed(offset_bytes_)));
    least_ = header.Fixed(1);
    header.Fixed(2);                                               // operations per instruction, is_stmt
    const auto base = static_cast<std::int64_t>(header.Fixed(1));  // a signed byte
    base_ = base < 128 ? base : base - 256;
    range_ = header.Fixed(1);
    first_special_ = header.Fixed(1);
    lengths_ = header.Take(first_special_ - std::min<std::uint64_t>(first_special_, 1));
    names_ = header;
    usable_ = header.ok() && range_ != 0 && first_special_ != 0 && address_bytes_ <= 8;
  }

  Place Find(std::uint64_t address) {
    Row before;
    Row row;
    bool begun = false;  // `before` is a row of the same sequence
    while (usable_ && !reader_.done()) {
      bool ended = false;
      if (!Step(row, ended)) continue;
      // Sequences at 0 are of functions that the linker dropped.
      if (begun && before.address != 0 && before.address <= address && address < row.address) {
        return {FileOf(before.file), static_cast<unsigned>(before.line)};
      }
      before = row;
      begun = !ended;
      if (ended) row = Row();
    }
    return {};
  }

 private:
  struct Row {
    std::uint64_t address = 0;
    std::uint64_t file = 1;
    std::int64_t line = 1;
  };

  // One operation. True: it made a row.
  bool Step(Row& row, bool& ended) {
    const std::uint64_t code = reader_.Fixed(1);
    if (code >= first_special_) {
      const std::uint64_t special = code - first_special_;
      row.address += special / range_ * least_;
      row.line += base_ + static_cast<std::int64_t>(special % range_);
      return true;
    }
    switch (code) {
      case 0: {
        Reader body(reader_.Take(reader_.Unsigned()));
        const std::uint64_t kind = body.Fixed(1);
        if (kind == 2) row.address = body.Fixed(address_bytes_);
        ended = kind == 1;
        return ended;
      }
      case 1:
        return true;
      case 2:
        row.address += reader_.Unsigned() * least_;
        return false;
      case 3:
        row.line += reader_.Signed();
        return false;
      case 4:
        row.file = reader_.Unsigned();
        return false;
      case 8:
        row.address += (255 - first_special_) / range_ * least_;
        return false;
      case 9:
        row.address += reader_.Fixed(2);
        return false;
      default:
        for (char left = lengths_[code - 1]; left > 0; --left) reader_.Unsigned();
        return false;
    }
  }

  std::string_view FileOf(std::uint64_t number) {
    const std::string_view path = version_ == 5 ? FileOf5(number) : FileOf4(number);
    return path.substr(path.rfind('/') + 1);
  }

  std::string_view FileOf4(std::uint64_t number) {
    Reader names = names_;
    while (names.ok() && !names.String().empty()) {  // folders
    }
    for (std::uint64_t i = 1; names.ok(); ++i) {
      const std::string_view name = names.String();
      if (name.empty() || i == number) return name;
      for (int field = 0; field < 3; ++field) names.Unsigned();
    }
    return {};
  }

  std::string_view FileOf5(std::uint64_t number) {
    Reader names = names_;
    static_cast<void>(Entry(names, ~std::uint64_t{0}));  // folders
    return Entry(names, number);
  }

  // Reads a list of entries, each of the fields that its head describes; the path of one of them.
  std::string_view Entry(Reader& names, std::uint64_t number) {
    const std::uint64_t fields = names.Fixed(1);
    const Reader formats = names;
    for (std::uint64_t i = 0; i < 2 * fields; ++i) names.Unsigned();
    const std::uint64_t count = names.Unsigned();
    std::string_view path;
    for (std::uint64_t entry = 0; entry < count && names.ok() && fields != 0; ++entry) {
      Reader format = formats;
      for (std::uint64_t i = 0; i < fields; ++i) {
        const std::uint64_t content = format.Unsigned();
        const std::string_view text = Field(names, format.Unsigned());
        if (content == kPath && entry == number) path = text;
      }
    }
    return path;
  }

  std::string_view Field(Reader& names, std::uint64_t form) const {
    switch (form) {
      case kString:
        return names.String();
      case kLineStrp:
        return StringAt(sections_.line_strings, names.Fixed(offset_bytes_));
      case kStrp:
        return StringAt(sections_.strings, names.Fixed(offset_bytes_));
      case kUdata:
        names.Unsigned();
        return {};
      case kBlock:
        names.Take(names.Unsigned());
        return {};
      case kData1:
      case kData2:
      case kData4:
      case kData8:
      case kData16:
        names.Take(form == kData1 ? 1 : form == kData2 ? 2 : form == kData4 ? 4 : form == kData8 ? 8 : 16);
        return {};
      default:
        names.Take(~std::uint64_t{0});  // unknown, so its length is: give up
        return {};
    }
  }

  const LineSections& sections_;
  Reader reader_;
  Reader names_{{}};
  std::size_t offset_bytes_;
  std::size_t address_bytes_ = 8;
  unsigned version_ = 0;
  std::uint64_t least_ = 1;
  std::int64_t base_ = 0;
  std::uint64_t range_ = 0;
  std::uint64_t first_special_ = 0;
  std::span<const char> lengths_;  // of the standard operations' arguments
  bool usable_ = false;
};

}  // namespace

Place FindLine(const LineSections& sections, std::uint64_t address) {
  Reader reader(sections.lines);
  while (!reader.done()) {
    std::uint64_t length = reader.Fixed(4);
    const bool wide = length == 0xffffffff;
    if (wide) length = reader.Fixed(8);
    Table table(sections, reader.Take(length), wide);
    const Place place = table.Find(address);
    if (place.line != 0 && !place.file.empty()) return place;
  }
  return {};
}

}  // namespace manta::worker
