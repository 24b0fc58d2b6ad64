#include "tune/loggers/loggers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "tune/journal/crc32c.h"

namespace manta::tune::loggers {
namespace {

using ::testing::HasSubstr;

class LoggersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path().string() + "/tune_loggers.XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Text(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::string folder_;
  Config config_{{"lr", 0.5}, {"model/act", std::string("relu")}};
};

TEST_F(LoggersTest, JsonIsNestedQuotedAndKeepsTheKindOfNumbers) {
  const Metrics metrics{{"a/b", 1.0},
                        {"a/c/d", std::int64_t{2}},
                        {"a/c/e", true},
                        {"text", "say \"x\"\n"},
                        {"z", std::numeric_limits<double>::quiet_NaN()}};
  const JsonValues json{{"list", "[1, null]"}};
  std::string text;
  AppendJson(text, metrics, &json, &config_);
  EXPECT_EQ(text, R"({"a": {"b": 1.0, "c": {"d": 2, "e": true}}, "config": {"lr": 0.5, "model": {"act": "relu"}}, )"
                  R"("list": [1, null], "text": "say \"x\"\n", "z": NaN})");
}

TEST_F(LoggersTest, CsvTakesItsHeaderFromTheFirstResultAlsoAfterARestart) {
  const Metrics first{{"loss", 0.25}, {"note", "a, b"}};
  const Metrics second{{"loss", 0.125}, {"new", 1.0}};
  {
    auto csv = MakeCsvLogger(folder_);
    csv->Write({.metrics = &first, .config = &config_});
    EXPECT_TRUE(csv->Flush());
  }
  auto csv = MakeCsvLogger(folder_);
  csv->Write({.metrics = &second, .config = &config_});
  EXPECT_TRUE(csv->Flush());
  EXPECT_EQ(Text("progress.csv"),
            "loss,note,config/lr,config/model/act\r\n0.25,\"a, b\",0.5,relu\r\n0.125,,0.5,relu\r\n");
}

TEST_F(LoggersTest, ResultJsonHasAnObjectPerLineAndParamsJsonTheConfiguration) {
  const Metrics metrics{{"loss", 0.25}};
  auto json = MakeJsonLogger(folder_);
  for (int i = 0; i < 3; ++i) json->Write({.metrics = &metrics});
  EXPECT_TRUE(json->Flush());
  EXPECT_EQ(Text("result.json"), "{\"loss\": 0.25}\n{\"loss\": 0.25}\n{\"loss\": 0.25}\n");
  WriteParams(folder_, config_);
  EXPECT_EQ(Text("params.json"), R"({"lr": 0.5, "model": {"act": "relu"}})");
}

// The records of a TFRecord file; fails when a checksum is wrong.
std::vector<std::string> Records(const std::string& file) {
  const auto masked = [](std::string_view bytes) {
    const std::uint32_t crc = journal::Crc32c(bytes);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
  };
  std::vector<std::string> records;
  for (std::size_t at = 0; at < file.size();) {
    std::uint64_t length = 0;
    std::uint32_t sum = 0;
    std::memcpy(&length, file.data() + at, 8);
    std::memcpy(&sum, file.data() + at + 8, 4);
    EXPECT_EQ(sum, masked(file.substr(at, 8)));
    records.push_back(file.substr(at + 12, length));
    std::memcpy(&sum, file.data() + at + 12 + length, 4);
    EXPECT_EQ(sum, masked(records.back()));
    at += 16 + length;
  }
  return records;
}

TEST_F(LoggersTest, TensorBoardGetsScalarsAndHyperparametersInRecordsWithChecksums) {
  const Metrics metrics{{"loss", 0.25}, {"note", "text"}};
  {
    auto board = MakeTensorBoardLogger(folder_, config_, "host", 1700000000);
    board->Write({.metrics = &metrics, .iteration = 3, .timestamp = 1700000001});
    board->End(1700000002);
    EXPECT_TRUE(board->Flush());
  }
  const std::vector<std::string> records = Records(Text("events.out.tfevents.1700000000.host"));
  ASSERT_EQ(records.size(), 5U);  // version, experiment, start, scalars, end
  EXPECT_THAT(records[0], HasSubstr("brain.Event:2"));
  EXPECT_THAT(records[2], HasSubstr("_hparams_/session_start_info"));
  EXPECT_THAT(records[2], HasSubstr("model/act"));
  EXPECT_THAT(records[3], HasSubstr("ray/tune/loss"));
  const std::string quarter("\x15\x00\x00\x80\x3e", 5);  // field 2, the float 0.25
  EXPECT_THAT(records[3], HasSubstr(quarter));
  EXPECT_THAT(records[3], ::testing::Not(HasSubstr("note")));
}

TEST(FolderName, HasTheIdTheParametersAndTheDateAndIsCut) {
  EXPECT_EQ(FolderName("train", "3f2a1_00017", 17, {{"lr", 0.01}, {"m/act", std::string("a/b c")}}, "D"),
            "train_3f2a1_00017_18_lr=0.0100,act=a_b_c_D");
  Config many;
  for (int i = 0; i < 50; ++i) many["key" + std::to_string(i)] = std::int64_t{i};
  EXPECT_EQ(FolderName("train", "id", 0, many, "D").size(), 132U);
}

}  // namespace
}  // namespace manta::tune::loggers
