#include "worker/lines.h"

#include <gtest/gtest.h>

#include <string>

#include "base/program.h"
#include "worker/symbols.h"

namespace manta::worker {
namespace {

constexpr unsigned kLineOfHere = __LINE__ + 1;
__attribute__((noinline)) const void* Here() { return __builtin_return_address(0); }

TEST(Lines, AnAddressOfThisFileHasItsLine) {
  const auto at = reinterpret_cast<std::uintptr_t>(&Here);
  const base::Module* module = base::ModuleOf(reinterpret_cast<const void*>(at));
  ASSERT_NE(module, nullptr);
  const Place place = SymbolFile(*module).FindLine(at);
  EXPECT_EQ(place.line, kLineOfHere);
}

// DWARF 4: one sequence, at 0x1000 line 7, at 0x1004 line 9, its end at 0x1008.
std::string Version4() {
  const std::string names = std::string("dir\0\0", 5) + std::string("dir/parse.cc\0\1\0\0\0", 17);
  const std::string header = std::string("\1\1\1\xfb\x0e\x0d\0\1\1\1\1\0\0\0\1\0\0\1", 18) + names;
  const std::string program = std::string("\0\x09\2\0\x10\0\0\0\0\0\0", 11) +  // address 0x1000
                              std::string("\3\6\1", 3) +                       // line 7
                              std::string("\2\4\3\2\1", 5) +                   // 4 bytes on, line 9
                              std::string("\2\4\0\1\1", 5);                    // 4 bytes on, the end
  const std::string body =
      std::string("\4\0", 2) + static_cast<char>(header.size()) + std::string(3, '\0') + header + program;
  return static_cast<char>(body.size()) + std::string(3, '\0') + body;
}

TEST(Lines, RowsCoverTheCodeUpToTheNextRow) {
  const std::string table = Version4();
  const LineSections sections{table, {}, {}};
  EXPECT_EQ(FindLine(sections, 0x0fff).line, 0U);
  EXPECT_EQ(FindLine(sections, 0x1000).line, 7U);
  EXPECT_EQ(FindLine(sections, 0x1003).line, 7U);
  EXPECT_EQ(FindLine(sections, 0x1004).line, 9U);
  EXPECT_EQ(FindLine(sections, 0x1007).file, "parse.cc");
  EXPECT_EQ(FindLine(sections, 0x1008).line, 0U);
}

TEST(Lines, ATableThatIsCutOrDamagedHasNoLineAndDoesNoHarm) {
  const std::string table = Version4();
  for (std::size_t size = 0; size < table.size(); ++size) {
    static_cast<void>(FindLine({std::span(table).first(size), {}, {}}, 0x1004));
  }
  for (std::size_t at = 0; at < table.size(); ++at) {
    for (int value = 0; value < 256; value += 5) {
      std::string damaged = table;
      damaged[at] = static_cast<char>(value);
      static_cast<void>(FindLine({damaged, {}, {}}, 0x1004));
    }
  }
}

}  // namespace
}  // namespace manta::worker
