#include "tune/search/traces.h"

#include <gtest/gtest.h>

#include "tune/search/ray_events.h"

namespace manta::tune {
namespace {

TEST(Schedulers, DecideAsRayOnRecordedEvents) {
  for (const char* trace : kRayEvents) EXPECT_EQ(TraceChecker::Check(trace, 0), "") << trace;
}

TEST(Schedulers, AreTheSameAfterSaveAndLoadInTheMiddle) {
  for (const char* trace : kRayEvents) EXPECT_EQ(TraceChecker::Check(trace, 5), "") << trace;
}

TEST(Schedulers, ATraceWithAnotherAnswerIsFound) {
  std::string trace = "hyperband mode=min max_t=1 reduction_factor=3 stop_last_trials=1 | a0 c0: r0:1:0.5:";
  EXPECT_EQ(TraceChecker::Check(trace + "S", 0), "");
  EXPECT_EQ(TraceChecker::Check(trace + "C", 0), "event 2, r0:1:0.5:C: S");
}

TEST(Schedulers, RefuseDamagedBytesAndThoseOfOthers) {
  auto asha = MakeScheduler(Asha{});
  (void)asha->OnAdd(3);
  std::string saved = asha->Save();
  EXPECT_THROW(MakeScheduler(Fifo{})->Load(saved), std::invalid_argument);
  EXPECT_THROW(MakeScheduler(Asha{})->Load(saved.substr(0, saved.size() - 1)), std::invalid_argument);
  EXPECT_THROW(MakeScheduler(Asha{})->Load(saved + "x"), std::invalid_argument);
  EXPECT_NO_THROW(MakeScheduler(Asha{})->Load(saved));
}

}  // namespace
}  // namespace manta::tune
