// Objects: Put, Get, Wait, Cancel, TryGet; large arrays are read in place; Refs travel inside values
// and keep alive what they name.
#include "fixture.h"

namespace manta::testing {
namespace {

class Objects : public ClusterTest {
 protected:
  [[nodiscard]] Config MakeConfig() const override {
    Config config = ClusterTest::MakeConfig();
    config.store_bytes = 1ULL << 30;
    return config;
  }
};

int Square(int x) { return x * x; }

// Ends when told to.
int HeldBy(const std::string& path, int value) {
  Sign::Await(path);
  return value;
}

TEST_F(Objects, WhatWasPutCanBeGot) {
  EXPECT_EQ(Put(42).Get(), 42);
  EXPECT_EQ(Get(Put("text")), "text");
  const std::map<std::string, std::vector<int>> map{{"a", {1, 2}}, {"b", {}}};
  EXPECT_EQ(Get(Put(map)), map);
}

TEST_F(Objects, AVectorOfRefsIsGotInOrder) {
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 1'000; ++i) refs.push_back(i % 2 == 0 ? Put(i) : Task(Square).Remote(i));
  const std::vector<int> values = Get(refs);
  ASSERT_EQ(values.size(), 1'000U);
  for (int i = 0; i < 1'000; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], i % 2 == 0 ? i : i * i);
  EXPECT_TRUE(Get(std::vector<Ref<int>>{}).empty());
}

TEST_F(Objects, GetStopsWaitingWhenTheTimeIsUp) {
  const Sign go;
  Ref<int> ref = Task(HeldBy).Remote(go.path(), 1);
  const std::string text = MessageOf<TimeoutError>([&] { ref.Get(20ms); });
  EXPECT_THAT(text, ::testing::HasSubstr("20 ms"));
  EXPECT_THROW(Get(std::vector<Ref<int>>{Put(1), ref}, 10ms), TimeoutError);
  EXPECT_THROW(ref.Get(0ms), TimeoutError);
  go.Give();
  EXPECT_EQ(ref.Get(), 1) << "a timeout does not hurt the task";
  EXPECT_EQ(ref.Get(0ms), 1);
}

TEST_F(Objects, WaitForOneAfterTheOtherCopiesNothingOfTheRest) {
  WaitResult<int> result;
  for (int i = 0; i < 1000; ++i) result.rest.push_back(Put(i));
  const Ref<int>* const memory = result.rest.data();
  for (int i = 0; i < 1000; ++i) {
    result = Wait(std::move(result.rest), 1);
    ASSERT_EQ(result.ready.size(), 1U);
    ASSERT_EQ(result.ready[0].Get(), i);
    ASSERT_EQ(result.rest.data(), memory) << "the same memory, moved and not copied";
  }
  EXPECT_TRUE(result.rest.empty());
}

TEST_F(Objects, WaitTakesReadyOnesOutOfTheMiddle) {
  const Sign go;
  const Ref<int> held = Task(HeldBy).Remote(go.path(), 0);
  const WaitResult<int> result = Wait(std::vector<Ref<int>>{held, Put(1), Put(2), held, Put(3), Put(4)}, 3);
  EXPECT_EQ(Get(result.ready), (std::vector<int>{1, 2, 3}));
  ASSERT_EQ(result.rest.size(), 3U);
  EXPECT_EQ(result.rest[0].id(), held.id());
  EXPECT_EQ(result.rest[1].id(), held.id());
  EXPECT_EQ(result.rest[2].Get(), 4);
  go.Give();
}

TEST_F(Objects, WaitGivesReadyAndRestInTheOrderGiven) {
  const Sign go;
  Ref<int> a = Task(HeldBy).Remote(go.path(), 1);
  Ref<int> b = Put(2);
  Ref<int> c = Put(3);
  WaitResult<int> result = Wait(std::vector<Ref<int>>{c, a, b}, 2);
  ASSERT_EQ(result.ready.size(), 2U);
  EXPECT_EQ(result.ready[0].Get(), 3);
  EXPECT_EQ(result.ready[1].Get(), 2);
  ASSERT_EQ(result.rest.size(), 1U);
  EXPECT_EQ(result.rest[0].id(), a.id());
  go.Give();
  EXPECT_EQ(Wait(result.rest, 1).ready.size(), 1U);
}

TEST_F(Objects, WaitTakesNoMoreThanAskedFor) {
  std::vector<Ref<int>> refs{Put(1), Put(2), Put(3)};
  WaitResult<int> result = Wait(refs, 1);
  ASSERT_EQ(result.ready.size(), 1U);
  EXPECT_EQ(result.ready[0].Get(), 1);
  ASSERT_EQ(result.rest.size(), 2U);
  EXPECT_EQ(result.rest[1].Get(), 3);
}

TEST_F(Objects, WaitGivesUpWhenTheTimeIsUp) {
  const Sign go;
  Ref<int> a = Task(HeldBy).Remote(go.path(), 1);
  Ref<int> b = Put(2);
  WaitResult<int> result = Wait(std::vector<Ref<int>>{a, b}, 2, 20ms);
  EXPECT_EQ(result.ready.size(), 1U);
  EXPECT_EQ(result.rest.size(), 1U);
  go.Give();
}

TEST_F(Objects, AFailedTaskCountsAsReady) {
  Ref<int> bad = Task([]() -> int { throw std::runtime_error("bad"); }).Remote();
  EXPECT_EQ(Wait(std::vector<Ref<int>>{bad}, 1).ready.size(), 1U);
}

TEST_F(Objects, WaitRefusesMoreThanThereAre) {
  EXPECT_THROW(Wait(std::vector<Ref<int>>{Put(1)}, 2), InvalidError);
  EXPECT_TRUE(Wait(std::vector<Ref<int>>{}, 0).ready.empty());
}

TEST_F(Objects, TryGetGivesTheValueOrTheError) {
  auto good = TryGet(Task(Square).Remote(4));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 16);
  auto bad = TryGet(Task([]() -> int { throw std::domain_error("x < 0"); }).Remote());
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.code(), Code::kTaskFailed);
  EXPECT_THAT(bad.message(), ::testing::HasSubstr("x < 0"));
  EXPECT_THROW(static_cast<void>(bad.value()), TaskError);
  const Sign go;
  Ref<int> slow = Task(HeldBy).Remote(go.path(), 1);
  EXPECT_EQ(TryGet(slow, 5ms).code(), Code::kTimedOut);
  go.Give();
}

TEST_F(Objects, ACancelledTaskThatWaitsIsDropped) {
  const Sign go;
  std::vector<Ref<int>> holders{Task(HeldBy).Remote(go.path(), 1), Task(HeldBy).Remote(go.path(), 2)};
  const Sign ran;
  Ref<int> waiting = Task([](const std::string& path, int after) {
                       Sign::Give(path);
                       return after;
                     }).Remote(ran.path(), holders[0]);
  Cancel(waiting);
  EXPECT_THROW(waiting.Get(5s), CancelledError);
  go.Give();
  Get(holders);
  EXPECT_EQ(Task(Square).Remote(2).Get(), 4);
  EXPECT_FALSE(Sign::Given(ran.path()));
}

TEST_F(Objects, ARunningTaskIsAskedToStop) {
  const Sign started;
  Ref<int> loop = Task([](const std::string& path) -> int {
                    Sign::Give(path);
                    for (;;) {
                      CheckCancelled();
                      std::this_thread::sleep_for(1ms);
                    }
                  })
                      .SetName("looper")
                      .Remote(started.path());
  ASSERT_TRUE(started.Await());
  Cancel(loop);
  EXPECT_THAT(MessageOf<CancelledError>([&] { loop.Get(10s); }), ::testing::HasSubstr("looper"));
}

TEST_F(Objects, ARunningTaskThatDoesNotListenIsKilledByForce) {
  const Sign started;
  Ref<int> deaf = RunForEver(started);
  ASSERT_TRUE(started.Await());
  Cancel(deaf, true);
  EXPECT_THROW(deaf.Get(10s), CancelledError);
  EXPECT_EQ(Task(Square).Remote(3).Get(), 9) << "and not retried for ever in its place";
}

TEST_F(Objects, ACancelledTaskThatReturnsAllTheSameHasNoResult) {
  const Sign started;
  const Sign go;
  Ref<std::vector<char>> deaf = Task([](const std::string& begun, const std::string& leave) {
                                  Sign::Give(begun);
                                  HeldBy(leave, 1);
                                  return std::vector<char>(1 << 20);  // in the store
                                }).Remote(started.path(), go.path());
  ASSERT_TRUE(started.Await());
  Cancel(deaf);
  go.Give();
  EXPECT_THROW(deaf.Get(100s), CancelledError);
}

TEST_F(Objects, CancelHasNoEffectOnWhatHasFinished) {
  Ref<int> done = Task(Square).Remote(5);
  EXPECT_EQ(done.Get(), 25);
  Cancel(done);
  Cancel(done, true);
  EXPECT_EQ(done.Get(), 25);
}

// ---- large values ----

TEST_F(Objects, AnArrayIsReadInPlace) {
  const std::vector<float> values(64ULL << 20, 1.5F);  // 256 MiB
  Ref<Array<float>> array = Put(values);
  const Array<float> first = array.Get();
  const Array<float> second = array.Get();
  ASSERT_EQ(first.size(), values.size());
  EXPECT_EQ(first.data(), second.data()) << "both see the same memory";
  EXPECT_EQ(first[values.size() - 1], 1.5F);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.data()) % 64, 0U);
  // A thousand Gets of 256 MiB would take a minute if one copied.
  const auto begin = Clock::now();
  for (int i = 0; i < 1'000; ++i) ASSERT_EQ(array.Get().size(), values.size());
  EXPECT_LT(Clock::now() - begin, 2s * kSlow);
}

TEST_F(Objects, ATaskReadsALargeArgumentInPlace) {
  const std::vector<float> values(64ULL << 20, 2);
  Ref<Array<float>> array = Put(values);
  auto look = [](const Array<float>& numbers) {
    std::istringstream status(ReadFile("/proc/self/status"));
    long private_kb = 0;
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("RssAnon:", 0) == 0) private_kb = std::atol(line.c_str() + 8);
    }
    return std::tuple(numbers[numbers.size() / 2], private_kb);
  };
  auto [number, private_kb] = Task(look).Remote(array);
  EXPECT_EQ(number.Get(), 2);
  EXPECT_LT(private_kb.Get(), (100L << 10) * kSlow) << "256 MiB were copied into the worker";
}

TEST_F(Objects, AnArrayLivesAsLongAsSomebodyLooksAtIt) {
  Array<int> array;
  {
    Ref<Array<int>> ref = Task([] { return std::vector<int>(1 << 20, 7); }).Remote();
    array = ref.Get();
  }
  for (int i = 0; i < 20; ++i) Put(std::vector<int>(1 << 20, 8));  // would take the place if it were free
  EXPECT_EQ(array[0], 7);
  EXPECT_EQ(array[(1 << 20) - 1], 7);
}

TEST_F(Objects, AVectorASpanAndAnArrayAreTheSameValue) {
  const std::vector<double> values{1, 2, 3};
  Ref<Array<double>> from_span = Put(std::span<const double>(values));
  Ref<Array<double>> from_vector = Put(values);
  EXPECT_EQ(from_span.Get()[2], 3);
  EXPECT_EQ(from_vector.Get()[2], 3);
  auto of_vector = [](const std::vector<double>& v) { return v.at(1); };
  auto of_array = [](const Array<double>& v) { return v[1]; };
  EXPECT_EQ(Task(of_vector).Remote(from_span).Get(), 2);
  EXPECT_EQ(Task(of_array).Remote(from_vector).Get(), 2);
  EXPECT_EQ(Task(of_array).Remote(Put(values)).Get(), 2);
}

// ---- Refs inside values, and Refs that outlive their maker ----

struct Parcel {
  std::string label;
  std::vector<Ref<int>> contents;
};

TEST_F(Objects, RefsInsideAValueCanBeGot) {
  Ref<Parcel> parcel = Put(Parcel{"squares", {Task(Square).Remote(3), Put(4)}});
  auto open = [](const Parcel& p) { return p.label + std::to_string(p.contents[0].Get() + p.contents[1].Get()); };
  EXPECT_EQ(Task(open).Remote(parcel).Get(), "squares13");
  EXPECT_EQ(parcel.Get().contents[0].Get(), 9);
}

TEST_F(Objects, AValueKeepsTheRefsInsideItAlive) {
  Ref<Parcel> parcel;
  {
    Ref<int> inner = Task(Square).Remote(11);
    parcel = Put(Parcel{"p", {inner}});
  }
  for (int i = 0; i < 100; ++i) Put(i);
  EXPECT_EQ(Task([](const Parcel& p) { return p.contents[0].Get(); }).Remote(parcel).Get(), 121);
}

TEST_F(Objects, ATaskMayReturnARefOfItsOwnTask) {
  Ref<Ref<int>> outer = Task([](int x) { return Task(Square).Remote(x); }).Remote(6);
  EXPECT_EQ(outer.Get().Get(), 36);
}

TEST_F(Objects, ATaskMayReturnARefOfWhatItPut) {
  Ref<std::vector<Ref<std::string>>> outer = Task([] {
                                               std::vector<Ref<std::string>> refs;
                                               for (int i = 0; i < 5; ++i)
                                                 refs.push_back(Put(std::string(100'000, char('a' + i))));
                                               return refs;
                                             }).Remote();
  const std::vector<Ref<std::string>> refs = outer.Get();
  ASSERT_EQ(refs.size(), 5U);
  EXPECT_EQ(refs[4].Get(), std::string(100'000, 'e'));
}

class Shelf {
 public:
  void Keep(Ref<std::string> ref) { kept_ = std::move(ref); }
  void Make(const std::string& text) { kept_ = Put(text); }
  void Forget() { kept_ = {}; }
  std::string Read() { return kept_.Get(); }
  Ref<std::string> Lend() { return kept_; }

 private:
  Ref<std::string> kept_;
};

TEST_F(Objects, ABorrowedRefKeptInAnActorStaysGood) {
  auto shelf = Actor<Shelf>().Remote();
  {
    Ref<std::string> small = Put(std::string("small"));
    shelf.Task(&Shelf::Keep).Remote(small).Get();
  }
  EXPECT_EQ(shelf.Task(&Shelf::Read).Remote().Get(), "small");
  {
    Ref<std::string> large = Task([] { return std::string(1 << 20, 'l'); }).Remote();
    shelf.Task(&Shelf::Keep).Remote(large).Get();
  }
  for (int i = 0; i < 50; ++i) Put(std::string(1 << 20, 'z'));
  EXPECT_EQ(shelf.Task(&Shelf::Read).Remote().Get(), std::string(1 << 20, 'l'));
  EXPECT_EQ(shelf.Task(&Shelf::Lend).Remote().Get().Get().size(), 1U << 20);
}

// Each answer makes the driver a holder, and each Ref that goes out of scope ends that: the two cross on their way to
// the daemon, in both orders.
TEST_F(Objects, ARefLentAgainAndAgainLivesWhenItsLenderForgetsIt) {
  auto shelf = Actor<Shelf>().Remote();
  for (int round = 0; round < 3'000; ++round) {
    const std::string text = std::to_string(round);
    if (round % 2 == 0) {
      shelf.Task(&Shelf::Make).Remote(text);
    } else {
      shelf.Task(&Shelf::Keep).Remote(Put(text));  // the driver's own comes back
    }
    Ref<std::string> last = shelf.Task(&Shelf::Lend).Remote().Get();
    for (int i = 0; i < round % 5; ++i) {
      Ref<Ref<std::string>> next = shelf.Task(&Shelf::Lend).Remote();
      last = {};
      last = next.Get();
    }
    shelf.Task(&Shelf::Forget).Remote().Get();
    ASSERT_EQ(last.Get(10s), text) << "round " << round;
  }
}

TEST_F(Objects, TenThousandRefsInOneValue) {
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 10'000; ++i) refs.push_back(Put(i));
  Ref<std::vector<Ref<int>>> all = Put(refs);
  refs.clear();
  const std::vector<int> values = Get(all.Get());
  ASSERT_EQ(values.size(), 10'000U);
  EXPECT_EQ(values[9'999], 9'999);
}

}  // namespace
}  // namespace manta::testing
