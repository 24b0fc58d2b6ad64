// A node of a cluster is killed, and the values that only its store had are made again. How often each task ran is
// counted outside the engine, in a file.
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "cluster_fixture.h"

namespace manta::testing {
namespace {

using Block = std::vector<std::uint64_t>;
constexpr std::size_t kWords = (10U << 20) / sizeof(std::uint64_t);

void Note(const std::string& log, const std::string& what) {
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string line = what + "\n";
  if (write(fd, line.data(), line.size()) < 0) abort();
  close(fd);
}

Block Make(const std::string& log, std::uint64_t seed) {
  Note(log, "make" + std::to_string(seed));
  return Block(kWords, seed);
}

Block Add(const std::string& log, std::uint64_t x, const Block& in) {
  Note(log, "add" + std::to_string(x));
  Block out = in;
  for (std::uint64_t& word : out) word += x;
  return out;
}

Block Join(const std::string& log, const Block& a, const Block& b) {
  Note(log, "join");
  Block out = a;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] += b[i];
  return out;
}

std::tuple<Block, Block, int> Split(const std::string& log, std::uint64_t seed) {
  Note(log, "split");
  return {Block(kWords, seed), Block(kWords, seed + 1), 7};
}

std::uint64_t Last(const std::string& log, const Block& in) {
  Note(log, "last");
  return in.size() == kWords && in.front() == in.back() ? in.back() : 0;
}

int WaitForSign(const std::string& begun, const std::string& sign) {
  Sign::Give(begun);
  return Sign::Await(sign) ? 1 : 0;
}

// Has the Ref before the value is lost, and looks at it afterwards.
std::uint64_t Borrow(const std::string& begun, const std::string& sign, const std::vector<Ref<Block>>& refs) {
  Sign::Give(begun);
  if (!Sign::Await(sign)) return 0;
  const Block block = refs.at(0).Get();
  return block.size() == kWords ? block.back() : 0;
}

// Has tasks of its own, and looks at what they made after it was lost.
std::uint64_t Nest(const std::string& log, const std::string& begun, const std::string& sign) {
  Ref<Block> ref = Task(Make).SetResource("gold", 1).Remote(log, 1);
  ref = Task(Add).SetResource("gold", 1).Remote(log, 2, ref);
  Wait(std::vector<Ref<Block>>{ref}, 1);
  Sign::Give(begun);
  return Sign::Await(sign) ? ref.Get().back() : 0;
}

class Holder {
 public:
  void Hold(const std::vector<Ref<Block>>& refs) { refs_ = refs; }
  std::uint64_t Read() {
    const Block block = refs_.at(0).Get();
    return block.size() == kWords ? block.back() : 0;
  }
  int Wait(const std::string& begun, const std::string& sign) { return WaitForSign(begun, sign); }
  std::uint64_t Take(const Block& block) {
    ++calls_;
    return block.size() == kWords ? block.back() : 0;
  }
  int Calls() { return ++calls_; }

 private:
  std::vector<Ref<Block>> refs_;
  int calls_ = 0;
};

Ref<Block> PutThere(const std::string& log, std::uint64_t seed) {
  Note(log, "put");
  return Put(Block(kWords, seed));
}
// Four blocks; in its second run another one before them, or behind them.
std::vector<Ref<Block>> PutFour(const std::string& log, bool before) {
  Note(log, "four");
  const bool again = Lines(ReadFile(log)).size() > 1;
  std::vector<Ref<Block>> refs;
  if (again && before) Put(Block(kWords, 99));
  for (std::uint64_t i = 0; i < 4; ++i) refs.push_back(Put(Block(kWords, i)));
  if (again && !before) Put(Block(kWords, 99));
  return refs;
}
// The same values in each run, in another order.
std::vector<Ref<int>> PutInTurns(const std::string& log) {
  Note(log, "turns");
  const int turn = static_cast<int>(Lines(ReadFile(log)).size());
  return {Put(turn % 2), Put(1 - turn % 2)};
}
// What it puts names what it has put before, and its process.
Ref<std::pair<int, Ref<Block>>> PutNested(const std::string& log) {
  Note(log, "nested");
  return Put(std::pair{7, Put(Block(kWords, 5))});
}
Ref<Block> PutDurable(std::uint64_t seed) { return Put(Block(kWords, seed), {.durable = true}); }
Ref<std::string> PutSmallDurable() { return Put("small", {.durable = true}); }
Ref<Block> MakeThere(const std::string& log, std::uint64_t seed) {
  return Task(Make).SetResource("gold", 0.5).Remote(log, seed);
}

Block Step(int milliseconds, std::size_t words, const Block& in) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return Block(words, in.at(0) + 1);
}

class RecoveryTest : public ClusterFixture {
 protected:
  void SetUp() override {
    ClusterFixture::SetUp();
    log_ = folder_.path() + "/log";
    std::vector<std::string> head{"--head", "--listen", "127.0.0.1:0", "--name", "n1", "--resource", "copper=1"};
    for (const std::string& word : Options()) head.push_back(word);
    Start(head);
    Start({"--join", Head(), "--name", "n2", "--resource", "gold=1"});
    Init();
  }
  void Start(std::vector<std::string> words) {
    words.insert(words.end(), {"--cpus", "1"});
    ClusterFixture::Start(std::move(words), "134217728");
  }
  // Of the driver's node.
  [[nodiscard]] virtual std::vector<std::string> Options() const {
    // All of this also holds if nearly all lineage is on disk; see LittleMemory.
    const char* memory = std::getenv("MANTA_LINEAGE_MEMORY");
    return memory == nullptr ? std::vector<std::string>() : std::vector<std::string>{"--lineage-memory", memory};
  }
  // Everything golden was made on n2. From now on n3 can, and n2 is gone.
  void LoseTheGoldenNode() {
    Start({"--join", Head(), "--name", "n3", "--resource", "gold=1"});
    ASSERT_GT(PidOf("node", "n2"), 0);
    kill(PidOf("node", "n2"), SIGKILL);
  }
  // Waits without looking: a look would bring a copy here.
  template <typename T>
  static void Ready(const Ref<T>& ref) {
    ASSERT_EQ(Wait(std::vector<Ref<T>>{ref}, 1).ready.size(), 1U);
  }
  [[nodiscard]] std::map<std::string, int> Counts() const {
    std::map<std::string, int> counts;
    for (const std::string& line : Lines(ReadFile(log_))) ++counts[line];
    return counts;
  }

  std::string log_;
};

TEST_F(RecoveryTest, AChainOfWhichOnlyTheEndIsHeldIsMadeAgainFromItsBeginning) {
  Ref<Block> ref = Task(Make).SetResource("gold", 1).Remote(log_, 100);
  for (int i = 1; i <= 4; ++i) ref = Task(Add).SetResource("gold", 1).Remote(log_, i, ref);
  Ready(ref);
  LoseTheGoldenNode();
  EXPECT_EQ(ref.Get(), Block(kWords, 110));
  const std::map<std::string, int> twice{{"make100", 2}, {"add1", 2}, {"add2", 2}, {"add3", 2}, {"add4", 2}};
  EXPECT_EQ(Counts(), twice);
  EXPECT_EQ(ref.Get(), Block(kWords, 110));
  EXPECT_EQ(Counts(), twice);
}

TEST_F(RecoveryTest, OnlyWhatIsLostAndNeededRunsAgain) {
  const Ref<Block> made = Task(Make).SetResource("gold", 1).Remote(log_, 1);
  const Ref<Block> middle = Task(Add).SetResource("gold", 1).Remote(log_, 2, made);
  const Ref<Block> end = Task(Add).SetResource("gold", 1).Remote(log_, 3, middle);
  const Ref<Block> other = Task(Make).SetResource("gold", 1).Remote(log_, 50);
  Ready(end);
  Ready(other);
  EXPECT_EQ(middle.Get().back(), 3U);  // from now on there is a copy here
  LoseTheGoldenNode();
  EXPECT_EQ(end.Get(), Block(kWords, 6));
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"make1", 1}, {"add2", 1}, {"add3", 2}, {"make50", 1}}));
}

TEST_F(RecoveryTest, ADiamondMakesItsSharedInputOnceMore) {
  Ref<Block> made = Task(Make).SetResource("gold", 1).Remote(log_, 1);
  const Ref<Block> left = Task(Add).SetResource("gold", 1).Remote(log_, 2, made);
  const Ref<Block> right = Task(Add).SetResource("gold", 1).Remote(log_, 3, made);
  made = {};
  const Ref<Block> joined = Task(Join).SetResource("gold", 1).Remote(log_, left, right);
  Ready(joined);
  LoseTheGoldenNode();
  const std::vector<Block> all = Get(std::vector<Ref<Block>>{joined, right, left});
  EXPECT_EQ(all[0], Block(kWords, 7));
  EXPECT_EQ(all[1], Block(kWords, 4));
  EXPECT_EQ(all[2], Block(kWords, 3));
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"make1", 2}, {"add2", 2}, {"add3", 2}, {"join", 2}}));
}

TEST_F(RecoveryTest, OfSeveralReturnsThoseThatAreHeldComeBackTogether) {
  auto [first, second, third] = Task(Split).SetResource("gold", 1).Remote(log_, 10);
  Ready(second);
  EXPECT_EQ(third.Get(), 7);
  first = {};
  LoseTheGoldenNode();
  EXPECT_EQ(second.Get(), Block(kWords, 11));
  EXPECT_EQ(third.Get(), 7);
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"split", 2}}));
}

TEST_F(RecoveryTest, ATaskThatWaitedForAWorkerWhenItsInputWasLostRunsWhenThatIsThereAgain) {
  const Ref<Block> made = Task(Make).SetResource("gold", 1).Remote(log_, 5);
  Ready(made);
  const Sign begun;
  const Sign sign;
  const Ref<int> busy = Task(WaitForSign).SetResource("copper", 1).Remote(begun.path(), sign.path());
  ASSERT_TRUE(begun.Await());
  const Ref<std::uint64_t> last = Task(Last).SetResource("copper", 1).Remote(log_, made);
  LoseTheGoldenNode();
  sign.Give();
  EXPECT_EQ(busy.Get(), 1);
  EXPECT_EQ(last.Get(), 5U);
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"make5", 2}, {"last", 1}}));
}

TEST_F(RecoveryTest, BorrowersOnOtherNodesShareOneRebuildByTheOwner) {
  const Ref<Block> made = Task(Make).SetResource("gold", 1).Remote(log_, 5);
  Ready(made);
  Start({"--join", Head(), "--name", "n4", "--resource", "tin=1"});
  const Sign begun_here;
  const Sign begun_there;
  const Sign sign;
  const std::vector<Ref<Block>> refs{made};
  const auto here = Task(Borrow).SetResource("copper", 1).Remote(begun_here.path(), sign.path(), refs);
  const auto there = Task(Borrow).SetResource("tin", 1).Remote(begun_there.path(), sign.path(), refs);
  ASSERT_TRUE(begun_here.Await());
  ASSERT_TRUE(begun_there.Await());
  LoseTheGoldenNode();
  sign.Give();
  EXPECT_EQ(here.Get(), 5U);
  EXPECT_EQ(there.Get(), 5U);
  EXPECT_EQ(made.Get().back(), 5U);
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"make5", 2}}));
}

TEST_F(RecoveryTest, ABorrowerStillGetsWhatItsOwnerHasNoRefToAnyMore) {
  auto holder = Actor<Holder>().SetCpus(0).Remote();
  Ref<Block> made = Task(Make).SetResource("gold", 1).Remote(log_, 5);
  Ready(made);
  holder.Task(&Holder::Hold).Remote(std::vector<Ref<Block>>{made}).Get();
  made = {};
  LoseTheGoldenNode();
  EXPECT_EQ(holder.Task(&Holder::Read).Remote().Get(), 5U);
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"make5", 2}}));
}

TEST_F(RecoveryTest, AnActorsCallWaitsInItsOrderForALostArgument) {
  auto holder = Actor<Holder>().SetCpus(0).Remote();
  const Sign begun;
  const Sign sign;
  const Ref<Block> made = Task(Make).SetResource("gold", 1).Remote(log_, 5);
  Ready(made);
  const auto busy = holder.Task(&Holder::Wait).Remote(begun.path(), sign.path());
  ASSERT_TRUE(begun.Await());
  const auto first = holder.Task(&Holder::Take).Remote(made);
  const auto second = holder.Task(&Holder::Calls).Remote();
  LoseTheGoldenNode();
  sign.Give();
  EXPECT_EQ(busy.Get(), 1);
  EXPECT_EQ(first.Get(), 5U);
  EXPECT_EQ(second.Get(), 2);
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"make5", 2}}));
}

TEST_F(RecoveryTest, WhatWasRebuiltCanBeLostAndRebuiltAgain) {
  Ref<Block> ref = Task(Make).SetResource("gold", 1).Remote(log_, 1);
  ref = Task(Add).SetResource("gold", 1).Remote(log_, 2, ref);
  Ready(ref);
  LoseTheGoldenNode();
  const Ref<std::uint64_t> last = Task(Last).SetResource("gold", 1).Remote(log_, ref);  // looks at it there
  EXPECT_EQ(last.Get(), 3U);
  Start({"--join", Head(), "--name", "n4", "--resource", "gold=1"});
  kill(PidOf("node", "n3"), SIGKILL);
  EXPECT_EQ(ref.Get(), Block(kWords, 3));
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"make1", 3}, {"add2", 3}, {"last", 1}}));
}

TEST_F(RecoveryTest, LargeArgumentsThatWereGivenByValueAreThereForTheSecondRun) {
  Ref<Block> ref = Task(Add).SetResource("gold", 1).Remote(log_, 1, Block(kWords, 7));
  ref = Task(Join).SetResource("gold", 1).Remote(log_, ref, Put(Block(kWords, 10)));
  Ready(ref);
  LoseTheGoldenNode();
  EXPECT_EQ(ref.Get(), Block(kWords, 18));
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"add1", 2}, {"join", 2}}));
}

TEST_F(RecoveryTest, WhatATaskHadItsOwnTasksMakeIsRebuiltByThatTasksProcess) {
  const Sign begun;
  const Sign sign;
  const auto sum = Task(Nest).SetResource("copper", 1).Remote(log_, begun.path(), sign.path());
  ASSERT_TRUE(begun.Await());
  LoseTheGoldenNode();
  sign.Give();
  EXPECT_EQ(sum.Get(), 3U);
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"make1", 2}, {"add2", 2}}));
}

TEST_F(RecoveryTest, APutThatIsLostNamesItself) {
  const Ref<Ref<Block>> outer = Task(PutThere).SetResource("gold", 1).SetRetries(0).Remote(log_, 1);
  const Ref<Block> inner = outer.Get();
  Ready(inner);
  LoseTheGoldenNode();
  const std::string text = MessageOf<LostError>([&] { inner.Get(); });
  EXPECT_THAT(text, ::testing::HasSubstr(inner.id().substr(0, 8)));
  EXPECT_THAT(text, ::testing::HasSubstr("10"));
  EXPECT_THAT(text, ::testing::HasSubstr("node 2"));
  EXPECT_THAT(text, ::testing::HasSubstr("Put"));
}

TEST_F(RecoveryTest, WhatATaskPutIsPutAgainByThatTask) {
  const Ref<Block> inner = Task(PutThere).SetResource("gold", 1).Remote(log_, 4).Get();
  Ready(inner);
  LoseTheGoldenNode();
  EXPECT_EQ(inner.Get(), Block(kWords, 4));
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"put", 2}}));
}

TEST_F(RecoveryTest, NoRefLeadsToAnotherValueWhenATaskPutsOneMoreInItsSecondRun) {
  const std::vector<Ref<Block>> refs = Task(PutFour).SetResource("gold", 1).Remote(log_, true).Get();
  for (const Ref<Block>& ref : refs) Ready(ref);
  LoseTheGoldenNode();
  for (const Ref<Block>& ref : refs) {
    const std::string text = MessageOf<NondeterminismError>([&] { ref.Get(); });
    EXPECT_THAT(text, ::testing::HasSubstr(ref.id().substr(0, 8)));
    EXPECT_THAT(text, ::testing::HasSubstr("PutFour"));
    EXPECT_THAT(text, ::testing::HasSubstr("was run again and did not make it"));
  }
  EXPECT_GE(Counts()["four"], 2);
}

TEST_F(RecoveryTest, APutMoreBehindTheOthersChangesNothing) {
  const std::vector<Ref<Block>> refs = Task(PutFour).SetResource("gold", 1).Remote(log_, false).Get();
  for (const Ref<Block>& ref : refs) Ready(ref);
  LoseTheGoldenNode();
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(refs[i].Get(), Block(kWords, i));
}

TEST_F(RecoveryTest, SmallValuesThatATaskPutsInAnotherOrderAreNotMixedUp) {
  const std::vector<Ref<int>> refs = Task(PutInTurns).SetResource("gold", 1).Remote(log_).Get();
  LoseTheGoldenNode();
  ASSERT_TRUE(Eventually([] { return Nodes().size() == 2; }, 10s));
  for (int i = 0; i < 2; ++i) {
    try {
      EXPECT_EQ(refs[static_cast<std::size_t>(i)].Get(), 1 - i) << "it was here already, or is lost";
    } catch (const NondeterminismError&) {
    }
  }
}

TEST_F(RecoveryTest, AValueWithARefInsideIsPutAgainUnderItsNameByAnotherProcess) {
  const Ref<std::pair<int, Ref<Block>>> outer = Task(PutNested).SetResource("gold", 1).Remote(log_).Get();
  LoseTheGoldenNode();
  ASSERT_TRUE(Eventually([] { return Nodes().size() == 2; }, 10s));
  const auto [number, inner] = outer.Get();
  EXPECT_EQ(number, 7);
  EXPECT_EQ(inner.Get(), Block(kWords, 5));
}

TEST_F(RecoveryTest, WhatATaskHadMadeByAnotherIsMadeAgainWhenTheirNodeDies) {
  const Ref<Block> inner = Task(MakeThere).SetResource("gold", 0.5).Remote(log_, 3).Get();
  Ready(inner);
  LoseTheGoldenNode();
  // As an argument, and of a task that has only the Ref.
  EXPECT_EQ(Task(Last).SetResource("copper", 1).Remote(log_, inner).Get(), 3U);
  EXPECT_EQ(inner.Get(), Block(kWords, 3));
  EXPECT_EQ(Counts()["make3"], 2);
}

TEST_F(RecoveryTest, ADurablePutSurvivesItsNode) {
  const Ref<Block> inner = Task(PutDurable).SetResource("gold", 0.5).SetRetries(0).Remote(6).Get();
  const Ref<Block> argument = Task(PutDurable).SetResource("gold", 0.5).SetRetries(0).Remote(7).Get();
  const Ref<std::string> small = Task(PutSmallDurable).SetResource("gold", 0.5).SetRetries(0).Remote().Get();
  Ready(inner);
  Ready(argument);
  LoseTheGoldenNode();
  EXPECT_EQ(inner.Get(), Block(kWords, 6));
  EXPECT_EQ(Task(Last).SetResource("copper", 1).Remote(log_, argument).Get(), 7U);
  EXPECT_EQ(small.Get(), "small");
}

// It might run again, and would make the value again, but no node has what it asks for.
TEST_F(RecoveryTest, ADurablePutSurvivesThoughItsTaskFindsNoNode) {
  const Ref<Block> inner = Task(PutDurable).SetResource("gold", 0.5).Remote(8).Get();
  Ready(inner);
  kill(PidOf("node", "n2"), SIGKILL);
  EXPECT_EQ(inner.Get(), Block(kWords, 8));
}

TEST_F(RecoveryTest, ATaskThatMayRunOnceIsNotRunAgain) {
  const Ref<Block> made = Task(Make).SetResource("gold", 1).SetRetries(0).Remote(log_, 5);
  Ready(made);
  LoseTheGoldenNode();
  EXPECT_THAT(MessageOf<LostError>([&] { made.Get(); }), ::testing::HasSubstr("only once"));
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"make5", 1}}));
}

// Lineage beyond a few calls goes to disk.
class LittleMemory : public RecoveryTest {
 protected:
  [[nodiscard]] std::vector<std::string> Options() const override { return {"--lineage-memory", "4096"}; }
  static constexpr std::size_t kFew = 1000;
};

Block Begin(const std::string& log, std::uint64_t seed) {
  Note(log, "begin");
  return Block(1000, seed);
}
Block Grow(const std::string& log, std::uint64_t x, const Block& in) {
  Note(log, "grow" + std::to_string(x));
  return Block(in.size(), in.at(0) + x);
}
Block Both(const std::string& log, const Block& a, const Block& b) {
  Note(log, "both");
  return Block(a.size(), a.at(0) + b.at(0));
}

std::tuple<Block, Block> Twice(const std::string& log, const Block& in) {
  Note(log, "twice");
  return {in, Block(in.size(), in.at(0) + 1)};
}

TEST_F(LittleMemory, AnEarlyObjectIsMadeAgainFromLineageOnDisk) {
  Ref<Block> left = Task(Begin).SetResource("gold", 1).Remote(log_, 1);
  Ref<Block> right = Task(Grow).SetResource("gold", 1).Remote(log_, 1000, left);
  std::map<std::string, int> once{{"begin", 1}, {"grow1000", 1}, {"both", 1}};
  for (std::uint64_t i = 1; i <= 100; ++i) {
    left = Task(Grow).SetResource("gold", 1).Remote(log_, i, left);
    once["grow" + std::to_string(i)] = 1;
  }
  Ref<Block> end = Task(Both).SetResource("gold", 1).Remote(log_, left, right);
  left = {};
  right = {};
  Ready(end);
  EXPECT_EQ(Counts(), once);
  LoseTheGoldenNode();
  EXPECT_EQ(end.Get(), Block(kFew, 1 + 1000 + 1 + 5050));
  for (auto& [task, count] : once) count = 2;
  EXPECT_EQ(Counts(), once);
  // What was read back is out again, and can be had once more.
  const pid_t n3 = PidOf("node", "n3");
  Ref<Block> next = Task(Grow).SetResource("gold", 1).Remote(log_, 7000, end);
  end = {};
  Ready(next);
  Start({"--join", Head(), "--name", "n4", "--resource", "gold=1"});
  kill(n3, SIGKILL);
  EXPECT_EQ(next.Get(), Block(kFew, 7000 + 1 + 1000 + 1 + 5050));
}

TEST_F(LittleMemory, CallsWithSeveralResultsAreMadeAgainFromLineageOnDisk) {
  Ref<Block> ref = Task(Begin).SetResource("gold", 1).Remote(log_, 1);
  for (int i = 0; i < 20; ++i) {
    auto [left, right] = Task(Twice).SetResource("gold", 1).Remote(log_, ref);
    ref = Task(Both).SetResource("gold", 1).Remote(log_, left, right);
  }
  Ready(ref);
  LoseTheGoldenNode();
  std::uint64_t expected = 1;
  for (int i = 0; i < 20; ++i) expected = 2 * expected + 1;
  EXPECT_EQ(ref.Get(), Block(kFew, expected));
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"begin", 2}, {"twice", 40}, {"both", 40}}));
}

TEST_F(LittleMemory, APutThatACallOnDiskNeedsIsThere) {
  const Ref<Block> weights = Put(Block(kFew, 5));
  Ref<Block> ref = Task(Begin).SetResource("gold", 1).Remote(log_, 1);
  for (int i = 0; i < 60; ++i) ref = Task(Both).SetResource("gold", 1).Remote(log_, ref, weights);
  Ready(ref);
  LoseTheGoldenNode();
  EXPECT_EQ(ref.Get(), Block(kFew, 301));
  EXPECT_EQ(Counts(), (std::map<std::string, int>{{"begin", 2}, {"both", 120}}));
}

// Where lineage beyond its memory goes, and what becomes of it where there is no room.
class LineageOnDisk : public LittleMemory {
 protected:
  [[nodiscard]] std::vector<std::string> Options() const override {
    return {"--lineage-memory", "4096", "--spill", spill_.path()};
  }
  // Files there that this process has open; they have no name.
  [[nodiscard]] int OpenFiles() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      count += std::filesystem::read_symlink(entry.path(), gone).string().starts_with(spill_.path() + "/") ? 1 : 0;
    }
    return count;
  }
  Ref<Block> Chain() {
    Ref<Block> ref = Task(Begin).SetResource("gold", 1).Remote(log_, 1);
    for (std::uint64_t i = 1; i <= 40; ++i) ref = Task(Grow).SetResource("gold", 1).Remote(log_, i, ref);
    Ready(ref);
    return ref;
  }
  // The calls at the beginning of a chain are not known any more; everything else goes on.
  void ExpectTheBeginningToBeLost(const std::string& why) {
    const Ref<Block> end = Chain();
    LoseTheGoldenNode();
    EXPECT_THAT(MessageOf<LostError>([&] { end.Get(60s); }), ::testing::HasSubstr(why));
    EXPECT_EQ(Task(Begin).SetResource("gold", 1).Remote(log_, 3).Get(60s), Block(kFew, 3));
  }
  Folder spill_;
};

TEST_F(LineageOnDisk, GoesToTheSpillFolderWithoutAName) {
  const Ref<Block> end = Chain();
  EXPECT_EQ(OpenFiles(), 1);
  EXPECT_THAT(spill_.Files(), ::testing::IsEmpty());
  LoseTheGoldenNode();
  EXPECT_EQ(end.Get(60s), Block(kFew, 1 + 820));
}

class LineageOverTheSpillLimit : public LineageOnDisk {
 protected:
  [[nodiscard]] std::vector<std::string> Options() const override {
    return {"--lineage-memory", "4096", "--spill", spill_.path(), "--spill-limit", "100000"};
  }
};

TEST_F(LineageOverTheSpillLimit, IsLostAndTheErrorNamesTheLimit) { ExpectTheBeginningToBeLost("--spill-limit"); }

class LineageWithoutASpillFolder : public LineageOnDisk {
 protected:
  [[nodiscard]] std::vector<std::string> Options() const override {
    return {"--lineage-memory", "4096", "--spill", "none"};
  }
};

TEST_F(LineageWithoutASpillFolder, IsLostAndTheErrorSaysSo) { ExpectTheBeginningToBeLost("--spill none"); }

// The folder on a file system of 64 KiB, if we may mount one.
class LineageOnAFullDisk : public LineageOnDisk {
 protected:
  void SetUp() override {
    mounted_ = mount("tmpfs", spill_.path().c_str(), "tmpfs", 0, "size=64k,mode=0700") == 0;
    if (!mounted_) GTEST_SKIP() << "needs the right to mount a tmpfs";
    std::ofstream(spill_.path() + "/full") << std::string(1 << 17, 'x');
    LineageOnDisk::SetUp();
  }
  void TearDown() override {
    if (!mounted_) return;
    LineageOnDisk::TearDown();
    EXPECT_EQ(umount(spill_.path().c_str()), 0) << "somebody still holds a file there";
  }
  bool mounted_ = false;
};

TEST_F(LineageOnAFullDisk, IsLostAndTheErrorNamesTheFolder) {
  ExpectTheBeginningToBeLost("'" + spill_.path() + "': No space left on device");
}

// MANTA_CHAIN=100 MANTA_STEP_MS=100 MANTA_KILL_MS=5000 is the row of issue 4; here it is short.
TEST_F(RecoveryTest, AChainWhoseNodeIsKilledInTheMiddleEndsAsIfNothingHadHappened) {
  const auto number = [](const char* name, int usual) {
    const char* text = std::getenv(name);
    return text == nullptr ? usual : std::atoi(text);
  };
  const int length = number("MANTA_CHAIN", 12);
  const int step = number("MANTA_STEP_MS", 20);
  const auto words = static_cast<std::size_t>(number("MANTA_WORDS", static_cast<int>(kWords)));
  const auto begin = Clock::now();
  Ref<Block> ref = Task(Step).SetResource("gold", 1).Remote(step, words, Block(1, 0));
  for (int i = 1; i < length; ++i) ref = Task(Step).SetResource("gold", 1).Remote(step, words, ref);
  Start({"--join", Head(), "--name", "n3", "--resource", "gold=1"});
  std::this_thread::sleep_until(begin + std::chrono::milliseconds(number("MANTA_KILL_MS", 200)));
  kill(PidOf("node", "n2"), SIGKILL);
  EXPECT_EQ(ref.Get().at(0), static_cast<std::uint64_t>(length));
  std::printf("%d tasks of %d ms with %zu bytes: %.2f s\n", length, step, words * sizeof(std::uint64_t),
              std::chrono::duration<double>(Clock::now() - begin).count());
}

}  // namespace
}  // namespace manta::testing
