// The seam for front ends in other languages (manta/internal/embed.h), used as one would: with one trampoline of its
// own.
#include "manta/internal/embed.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "fixture.h"

namespace manta {
namespace {

using internal::ForeignError;
using internal::Invocation;

class EmbedTest : public testing::ClusterTest {};

int ThrowForeign(bool cancelled) {
  throw ForeignError(cancelled ? Code::kCancelled : Code::kTaskFailed, "the whole story", "klingon",
                     std::string("pay\0load", 8), false);
}
int ThrowUntil(const std::string& path, int times) {
  FILE* file = std::fopen(path.c_str(), "a");
  std::fputc('x', file);
  const long runs = std::ftell(file);
  std::fclose(file);
  if (runs < times) throw ForeignError(Code::kTaskFailed, "again", "klingon", {}, true);
  return static_cast<int>(runs);
}

TEST_F(EmbedTest, AForeignErrorArrivesWithItsTypeAndItsBytes) {
  try {
    Task(ThrowForeign).Remote(false).Get();
    FAIL();
  } catch (const TaskError& error) {
    EXPECT_STREQ(error.what(), "the whole story");
    EXPECT_EQ(error.type(), "klingon");
    EXPECT_EQ(error.cause(), std::string("pay\0load", 8));
  }
  EXPECT_THROW(Task(ThrowForeign).Remote(true).Get(), CancelledError);
}

TEST_F(EmbedTest, AForeignErrorSaysItselfWhetherToRetry) {
  const testing::Folder own;
  const std::string path = own.path() + "/runs";
  EXPECT_EQ(Task(ThrowUntil).SetRetries(5).Remote(path, 3).Get(), 3);
}

TEST_F(EmbedTest, IsReadyTellsWithoutWaiting) {
  const Ref<int> there = Put(1);
  EXPECT_TRUE(internal::IsReady(there.entry()));
  const Ref<int> later = Task([](int ms) {
                           std::this_thread::sleep_for(std::chrono::milliseconds(ms));
                           return ms;
                         }).Remote(200);
  EXPECT_FALSE(internal::IsReady(later.entry()));
  EXPECT_EQ(later.Get(), 200);
  EXPECT_TRUE(internal::IsReady(later.entry()));
}

// An actor with a step: a call waits until `kTogether` of them are under way, all on one thread.
constexpr std::size_t kTogether = 5;
std::vector<Invocation*> g_waiting;
int g_answer = 0;

void Answer(Invocation& call) {
  if (g_answer == 0) throw ForeignError(Code::kTaskFailed, "zero", "klingon", {}, false);
  Encode(g_answer, std::span<std::byte>(call.Return(0, EncodedSize(g_answer)), EncodedSize(g_answer)));
}
bool Step(bool) {
  if (g_waiting.size() >= kTogether) {
    for (Invocation* call : std::exchange(g_waiting, {})) {
      internal::Resume(call, &Answer);
      ++g_answer;
    }
  }
  return !g_waiting.empty();
}
void Create(Invocation& call) {
  static int self = 0;
  call.self = &self;
  internal::SetActorStep(call, &Step);
}
void Call(Invocation& call) {
  g_waiting.push_back(&call);
  internal::Defer(call);
}

internal::Site SiteOf(internal::Trampoline trampoline) {
  internal::Site site;
  site.trampoline = trampoline;
  return site;
}

TEST_F(EmbedTest, CallsOfAnActorWithAStepEndLaterThanTheirTrampolines) {
  ActorSettings settings;
  settings.concurrency = 100;
  internal::RefScope scope;
  internal::Arguments& arguments = internal::Arguments::ForThisThread();
  const auto actor = internal::Handle<internal::ActorEntry>::Adopt(
      internal::CreateActor(SiteOf(&Create), arguments, scope, settings, "Stepper"));
  arguments.Done();
  std::vector<Ref<int>> refs;
  for (std::size_t i = 0; i < kTogether; ++i) {
    internal::RefScope inner;
    internal::Arguments& none = internal::Arguments::ForThisThread();
    internal::Entry* out = nullptr;
    internal::CallActor(actor.get(), SiteOf(&Call), none, inner, nullptr, 1, &out);
    none.Done();
    refs.emplace_back(internal::Handle<internal::Entry>::Adopt(out));
    if (i + 1 < kTogether) {
      EXPECT_TRUE(Wait(refs, 1, std::chrono::milliseconds(1)).ready.empty());
    }
  }
  EXPECT_THROW(refs[0].Get(), TaskError);
  for (std::size_t i = 1; i < kTogether; ++i) EXPECT_EQ(refs[i].Get(), static_cast<int>(i));
}

struct Loner {
  std::string Id() { return internal::OwnActor(); }
  void Leave() { throw internal::WorkerExit({.status = 0, .for_good = true, .why = "it leaves"}); }
};

TEST_F(EmbedTest, AnActorKnowsItsIdAndCanEndItself) {
  EXPECT_EQ(internal::OwnActor(), "");
  EXPECT_THROW(internal::EndWorker({}), InvalidError);
  auto actor = manta::Actor<Loner>().Remote();
  EXPECT_EQ(actor.Task(&Loner::Id).Remote().Get().size(), 32U);
  EXPECT_THROW(actor.Task(&Loner::Leave).Remote().Get(), ActorDiedError);
}

TEST_F(EmbedTest, ResourcesInUseAreThoseOfWhatRuns) {
  const auto in_use = [] {
    const auto all = internal::ResourcesInUse();
    const auto cpus = all.find("CPU");
    return cpus == all.end() ? 0.0 : cpus->second;
  };
  const Ref<int> busy = Task([](int seconds) {
                          std::this_thread::sleep_for(std::chrono::seconds(seconds));
                          return seconds;
                        })
                            .SetCpus(2)
                            .Remote(60);
  for (int i = 0; i < 10'000 && in_use() != 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(in_use(), 2);
  Cancel(busy, true);
  for (int i = 0; i < 10'000 && in_use() != 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(in_use(), 0);
}

}  // namespace
}  // namespace manta
