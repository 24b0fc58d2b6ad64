// What workers print reaches the driver's own stdout and stderr: each line once, with task and pid in
// front, none lost at exit.
#include <regex>

#include "fixture.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The lines that end in `text`, with what stands in front.
std::vector<std::string> PrefixesOf(const std::string& output, const std::string& text) {
  std::vector<std::string> prefixes;
  for (const std::string& line : Lines(output)) {
    if (line.size() > text.size() && line.ends_with(" " + text))
      prefixes.push_back(line.substr(0, line.size() - text.size()));
  }
  return prefixes;
}

TEST(Output, EveryLineArrivesOnceWithTaskAndPidInFront) {
  Child program("chatty", {"lines"});
  ASSERT_EQ(program.Finish(), 0) << program.Err();
  const std::string out = program.Out();
  const std::string err = program.Err();
  std::set<std::string> pids;
  for (const std::string& line : Lines(out)) {
    if (line.rfind("worker ", 0) == 0) pids.insert(line.substr(7));
  }
  EXPECT_FALSE(pids.empty());
  std::map<std::string, int> seen;
  const std::regex form(R"(\((.*)pid=(\d+)\) ((out|err) \d+\.\d+))");
  for (const std::string& output : {out, err}) {
    for (const std::string& line : Lines(output)) {
      std::smatch match;
      if (!std::regex_match(line, match, form)) continue;
      ++seen[match[3]];
      EXPECT_THAT(match[1].str(), HasSubstr("talk"));
      EXPECT_TRUE(pids.contains(match[2])) << line;
    }
  }
  EXPECT_EQ(seen.size(), 20U * 50 * 2);
  for (const auto& [line, times] : seen) EXPECT_EQ(times, 1) << line;
}

TEST(Output, StdoutGoesToStdoutAndStderrToStderr) {
  Child program("chatty", {"lines"});
  ASSERT_EQ(program.Finish(), 0);
  EXPECT_THAT(program.Out(), Not(HasSubstr("err 3.7")));
  EXPECT_THAT(program.Err(), Not(HasSubstr("out 3.7")));
  EXPECT_EQ(PrefixesOf(program.Out(), "out 3.7").size(), 1U);
  EXPECT_EQ(PrefixesOf(program.Err(), "err 3.7").size(), 1U);
}

TEST(Output, LinesOfOneTaskStayInOrder) {
  Child program("chatty", {"lines"});
  ASSERT_EQ(program.Finish(), 0);
  const std::string out = program.Out();
  std::size_t at = 0;
  for (int i = 0; i < 50; ++i) {
    const std::size_t next = out.find("out 11." + std::to_string(i) + "\n");
    ASSERT_NE(next, std::string::npos);
    EXPECT_GE(next, at);
    at = next;
  }
}

TEST(Output, NothingIsLostAtExit) {
  for (int round = 0; round < 5; ++round) {
    Child program("chatty", {"exit"});
    ASSERT_EQ(program.Finish(), 0) << program.Err();
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(PrefixesOf(program.Out(), "line " + std::to_string(i)).size(), 1U) << program.Out();
    }
    const std::vector<std::string> last = PrefixesOf(program.Out(), "the last one");
    ASSERT_EQ(last.size(), 1U);
    EXPECT_THAT(last[0], HasSubstr("Parrot"));
  }
}

TEST(Output, ALineWithoutItsNewlineArrivesToo) {
  Child program("chatty", {"half"});
  ASSERT_EQ(program.Finish(), 0);
  EXPECT_EQ(PrefixesOf(program.Out(), "no newline at the end").size(), 1U) << program.Out();
}

TEST(Output, ALongLineArrivesWhole) {
  Child program("chatty", {"long", "60000"});
  ASSERT_EQ(program.Finish(), 0);
  EXPECT_THAT(program.Out(), HasSubstr(" " + std::string(60'000, 'x') + "\n"));
}

TEST(Output, AVeryLongLineArrivesInPiecesWithNothingLost) {
  Child program("chatty", {"long", "1000000"});
  ASSERT_EQ(program.Finish(), 0);
  const std::string out = program.Out();
  EXPECT_EQ(std::count(out.begin(), out.end(), 'x'), 1'000'000);
}

TEST(Output, TheLastWordsOfACrashedWorkerArrive) {
  CrashesAreIntended();
  Child program("chatty", {"die"});
  ASSERT_EQ(program.Finish(), 0);
  EXPECT_EQ(PrefixesOf(program.Out(), "famous last words").size(), 1U) << program.Out();
  EXPECT_THAT(program.Out(), HasSubstr("caught"));
}

TEST(Output, ItCanBeTurnedOff) {
  Child program("chatty", {"quiet"});
  ASSERT_EQ(program.Finish(), 0);
  EXPECT_THAT(program.Out(), Not(HasSubstr("secret")));
}

TEST(Output, TheUsersMainRunsOnce) {
  Child program("chatty", {"lines"});
  ASSERT_EQ(program.Finish(), 0);
  const std::string err = program.Err();
  const std::size_t first = err.find("main runs");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(err.find("main runs", first + 1), std::string::npos);
}

}  // namespace
}  // namespace manta::testing
