// For this room's tests: a folder that goes away, and a loop that runs until something is so.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/loop.h"
#include "control/storage.h"

namespace manta::control {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = testing::TempDir() + "/manta-control-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TestFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// false: still not after 20 s.
inline bool RunUntil(base::Loop& loop, const std::function<bool()>& so) {
  const std::int64_t end = base::NowMicros() + 20'000'000;
  while (!so()) {
    if (base::NowMicros() > end) return false;
    loop.RunOnce(100'000);
  }
  return true;
}

inline Result<std::uint64_t> ApplyNow(base::Loop& loop, Storage& storage, Batch batch) {
  std::optional<Result<std::uint64_t>> answer;
  storage.Apply(std::move(batch), [&](Result<std::uint64_t> result) { answer = std::move(result); });
  if (!RunUntil(loop, [&] { return answer.has_value(); })) return Status(Code::kTimedOut, "no answer to Apply");
  return *answer;
}

inline Result<std::uint64_t> PutNow(base::Loop& loop, Storage& storage, Table table, const std::string& key,
                                    std::optional<std::string> value) {
  Batch batch;
  batch.writes.push_back(Write{table, key, std::move(value)});
  return ApplyNow(loop, storage, std::move(batch));
}

inline Result<std::optional<Entry>> GetNow(base::Loop& loop, Storage& storage, Table table, const std::string& key) {
  std::optional<Result<std::optional<Entry>>> answer;
  storage.Get(table, key, [&](Result<std::optional<Entry>> result) { answer = std::move(result); });
  if (!RunUntil(loop, [&] { return answer.has_value(); })) return Status(Code::kTimedOut, "no answer to Get");
  return *answer;
}

// The value, or "-" for none and "!" with the message for a failure.
inline std::string ValueNow(base::Loop& loop, Storage& storage, Table table, const std::string& key) {
  const Result<std::optional<Entry>> entry = GetNow(loop, storage, table, key);
  if (!entry.ok()) return "!" + entry.status().message();
  return entry.value() ? entry.value()->value : "-";
}

inline Result<Page> ScanNow(base::Loop& loop, Storage& storage, Table table, const std::string& prefix,
                            const std::string& after = "", std::size_t limit = 0) {
  std::optional<Result<Page>> answer;
  storage.Scan(table, prefix, after, limit, [&](Result<Page> result) { answer = std::move(result); });
  if (!RunUntil(loop, [&] { return answer.has_value(); })) return Status(Code::kTimedOut, "no answer to Scan");
  return std::move(*answer);
}

// "a=1 b=2", over all pages.
inline std::string ScanText(base::Loop& loop, Storage& storage, Table table, const std::string& prefix,
                            std::size_t limit = 0) {
  std::string text;
  std::string after;
  for (;;) {
    const Result<Page> page = ScanNow(loop, storage, table, prefix, after, limit);
    if (!page.ok()) return "!" + page.status().message();
    for (const Entry& entry : page.value().entries) {
      text += (text.empty() ? "" : " ") + entry.key + "=" + entry.value;
      after = entry.key;
    }
    if (!page.value().more) return text;
  }
}

inline Result<std::vector<Batch>> EntriesNow(base::Loop& loop, Storage& storage, std::uint64_t after,
                                             std::size_t limit = Storage::kPageEntries) {
  std::optional<Result<std::vector<Batch>>> answer;
  storage.EntriesAfter(after, limit, [&](Result<std::vector<Batch>> result) { answer = std::move(result); });
  if (!RunUntil(loop, [&] { return answer.has_value(); })) return Status(Code::kTimedOut, "no answer to EntriesAfter");
  return std::move(*answer);
}

}  // namespace manta::control
