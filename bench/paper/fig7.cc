// Figure 7: add(a, b) with a on N1 and b on N2, invoked on N1. The steps of the paper's figure, each shown by what the
// two nodes' counters say before and after; the locations of c go from {N2} to {N2, N1}. b is larger than a, because
// the engine goes where more of the arguments is (in the paper's example either would do).
#include <manta/manta.h>

#include <cstdint>
#include <string>
#include <vector>

#include "figure.h"
#include "harness.h"
#include "nodes.h"

namespace {

using bench::Nodes;
using paper::Figure;
using paper::Number;
using Words = manta::Array<std::uint64_t>;

constexpr std::size_t kWordsOfA = 1'000'000;  // 8 MB
constexpr std::size_t kWordsOfB = 4'000'000;  // 32 MB

Words Make(std::size_t count, std::uint64_t value) { return Words(count, value); }

Words Add(const Words& a, const Words& b) {
  std::vector<std::uint64_t> sum(a.begin(), a.end());
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  sum[0] = manta::CurrentContext().node == "n2" ? 2 : 1;  // says who made it
  return Words(std::move(sum));
}

struct Seen {
  double at = 0;
  double questions = 0;
  double fetched[2] = {0, 0};
  double objects[2] = {0, 0};
};

Seen Look(const Nodes& nodes) {
  Seen seen;
  seen.questions = nodes.Status(1, "lease_questions");
  for (std::size_t i = 0; i < 2; ++i) {
    seen.fetched[i] = nodes.Status(i + 1, "bytes_fetched") / 1e6;
    seen.objects[i] = nodes.Status(i + 1, "store_objects");
  }
  return seen;
}

void Measure(int argc, char** argv) {
  Figure figure(argc, argv, "fig7", "Figure 7: add(a, b), a on N1, b on N2");
  bench::NodesOptions options;
  options.cpus = 2;
  const Nodes nodes(options);
  const Nodes::Driver driver(nodes);

  const manta::Ref<Words> a = manta::Put(Words(kWordsOfA, 40));
  const manta::Ref<Words> b = manta::Task(Make).SetResource("n2", 1).Remote(kWordsOfB, std::uint64_t{2});
  if (manta::Wait(std::vector{b}, 1).ready.empty()) bench::Fail("b was not made");
  const Seen before = Look(nodes);

  const double begin = bench::Now();
  const manta::Ref<Words> c = manta::Task(Add).Remote(a, b);
  const double submitted = bench::Now();
  if (manta::Wait(std::vector{c}, 1).ready.empty()) bench::Fail("c was not made");
  const double made = bench::Now();
  const Seen after = Look(nodes);
  const double get = bench::Now();
  const Words sum = c.Get();
  const double got = bench::Now();
  const Seen end = Look(nodes);

  if (sum.size() != kWordsOfA || sum[1] != 42) bench::Fail("wrong sum");
  const std::string where = sum[0] == 2 ? "N2" : "N1";
  const bool replicated = end.fetched[0] - after.fetched[0] > 1;
  const auto delta = [](double later, double earlier) { return Number(later - earlier); };
  std::vector<std::vector<std::string>> rows{{"step in the paper", "seen here", "ms since the call"}};
  rows.push_back({"a 1: the driver submits add(a, b) to its local scheduler", "Remote() returned",
                  Number((submitted - begin) * 1e3)});
  rows.push_back({"a 2–4: the global scheduler is asked where to run it, and says N2",
                  delta(after.questions, before.questions) + " question(s) from N1; add ran on " + where, ""});
  rows.push_back({"a 5–7: N2's store lacks a, finds it on N1 and copies it",
                  "N2 fetched " + delta(after.fetched[1], before.fetched[1]) + " MB; N1 fetched " +
                      delta(after.fetched[0], before.fetched[0]) + " MB",
                  ""});
  rows.push_back({"a 8–9: add runs on N2",
                  "c is ready; locations of c: {N2}; objects on N1 / N2: " + Number(after.objects[0]) + " / " +
                      Number(after.objects[1]),
                  Number((made - begin) * 1e3)});
  rows.push_back(
      {"b 1–5: Get on N1 finds that c is on N2", "Get() called", Number((get - begin) * 1e3) + " (after looking)"});
  rows.push_back({"b 6–7: N1 copies c and returns it",
                  "N1 fetched " + delta(end.fetched[0], after.fetched[0]) +
                      " MB; locations of c: " + (replicated ? "{N2, N1}" : "{N2}") +
                      "; objects on N1 / N2: " + Number(end.objects[0]) + " / " + Number(end.objects[1]),
                  "Get took " + Number((got - get) * 1e3)});
  figure.Table(rows);
  if (where != "N2" || !replicated || after.questions - before.questions < 1) {
    bench::Fail("the steps are not those of the paper: see above");
  }
  figure.Say(
      "Here the owner of a and b (the driver) knows where they are, so nobody is asked for locations: the paper's "
      "lookups in the control store (a 3, a 6, b 2) are not messages.");
  figure.Draw(
      {.title = "Figure 7: bytes of a, b and c on the two nodes",
       .note = {},
       .x = {"step (1: before, 2: c is made, 3: after Get)", false, ""},
       .y = {"fetched so far, MB", false, ""},
       .series = {
           {"by N1", paper::Mark::kMeasured, {{1, before.fetched[0]}, {2, after.fetched[0]}, {3, end.fetched[0]}}},
           {"by N2", paper::Mark::kMeasured, {{1, before.fetched[1]}, {2, after.fetched[1]}, {3, end.fetched[1]}}}}});
}

}  // namespace

int main(int argc, char** argv) { return paper::Main(argc, argv, Measure); }
