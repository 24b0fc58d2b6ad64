#include "node/output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

namespace manta::node {
namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;

class Splitting : public testing::Test {
 protected:
  void Add(std::string_view bytes) { splitter_.Add(bytes, keep_); }
  void End() { splitter_.End(keep_); }

  LineSplitter splitter_;
  Lines lines_;
  LineSplitter::OnLine keep_ = [this](const std::string& label, std::string text) {
    lines_.emplace_back(label, std::move(text));
  };
};

TEST_F(Splitting, LinesMayComeInAnyPieces) {
  Add("one\ntw");
  Add("o\n");
  Add("\nthree");
  End();
  EXPECT_EQ(lines_, (Lines{{"", "one"}, {"", "two"}, {"", ""}, {"", "three"}}));
}

TEST_F(Splitting, AMarkerSetsTheLabelAndIsNotShown) {
  Add("a\n\1square\nb\n\1");
  Add("cube\nc\n");
  End();
  EXPECT_EQ(lines_, (Lines{{"", "a"}, {"square", "b"}, {"cube", "c"}}));
}

TEST_F(Splitting, ALongLineIsCutIntoPiecesAndNothingIsLost) {
  const std::string text(LineSplitter::kMaxLine * 2 + 5, 'x');
  Add(text + "\nnext\n");
  ASSERT_EQ(lines_.size(), 4U);
  EXPECT_EQ(lines_[0].second.size() + lines_[1].second.size() + lines_[2].second.size(), text.size());
  EXPECT_EQ(lines_[3].second, "next");
}

TEST_F(Splitting, ALineOfExactlyTheLimitIsOneLine) {
  Add(std::string(LineSplitter::kMaxLine, 'x') + "\ny\n");
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_EQ(lines_[1].second, "y");
}

TEST_F(Splitting, TheRestOfACutLineIsNoMarker) {
  Add(std::string(LineSplitter::kMaxLine, 'x'));
  Add(std::string("\1odd\n"));
  EXPECT_EQ(lines_.size(), 2U);
  EXPECT_EQ(lines_[1].second, "\1odd");
}

class Output : public testing::Test {
 protected:
  void SetUp() override {
    loop_ = std::move(*base::Loop::Create());
    output_ = std::make_unique<ProcessOutput>(
        *loop_, [this](std::vector<wire::LogLine> lines) { lines_.insert(lines_.end(), lines.begin(), lines.end()); },
        [this] { return ready_; });
    ASSERT_TRUE(output_->Open(&out_, &error_).ok());
  }
  static void Write(const base::Fd& fd, const std::string& text) {
    ASSERT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  std::unique_ptr<base::Loop> loop_;
  bool ready_ = true;
  std::vector<wire::LogLine> lines_;
  std::unique_ptr<ProcessOutput> output_;
  base::Fd out_;
  base::Fd error_;
};

TEST_F(Output, LinesWaitForThePid) {
  Write(out_, "early\n");
  loop_->RunOnce(100000);
  EXPECT_TRUE(lines_.empty());
  output_->SetPid(42);
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_EQ(lines_[0].pid, 42U);
}

TEST_F(Output, FinishReadsWhatIsThereThoughSomebodyKeepsThePipeOpen) {
  output_->SetPid(42);
  Write(out_, "a\nlast");
  Write(error_, "trouble\n");
  output_->Finish();
  ASSERT_EQ(lines_.size(), 3U);
  EXPECT_EQ(lines_[1].text, "last");
  EXPECT_TRUE(lines_[2].error_stream);
}

TEST_F(Output, TheTailIsTheLastLines) {
  output_->SetPid(42);
  for (int i = 0; i < 50; ++i) Write(out_, Cat("line ", i, "\n"));
  output_->Finish();
  const std::string tail = output_->Tail();
  EXPECT_EQ(tail.find("line 9\n"), std::string::npos);
  EXPECT_NE(tail.find("  line 10\n"), std::string::npos);
  EXPECT_NE(tail.find("  line 49\n"), std::string::npos);
}

TEST_F(Output, NothingIsReadWhileTheDriverDoesNotKeepUp) {
  output_->SetPid(42);
  ready_ = false;
  Write(out_, "wait\n");
  loop_->RunOnce(100000);
  EXPECT_TRUE(lines_.empty());
  ready_ = true;
  for (int i = 0; i < 100 && lines_.empty(); ++i) loop_->RunOnce(100000);
  EXPECT_EQ(lines_.size(), 1U);
}

}  // namespace
}  // namespace manta::node
