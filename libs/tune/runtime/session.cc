#include "tune/runtime/session.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <typeinfo>

#include "tune/loggers/loggers.h"
#include "tune/trials/spelling.h"

namespace manta::tune {

namespace fs = std::filesystem;

namespace internal {
namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

const std::string& HostName() {
  static const std::string kName = [] {
    char name[256] = "localhost";
    (void)gethostname(name, sizeof name - 1);
    return std::string(name);
  }();
  return kName;
}

std::string CheckpointName(std::int64_t index) {
  char name[40];
  std::snprintf(name, sizeof name, "checkpoint_%06lld", static_cast<long long>(index));
  return name;
}

void SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)fsync(fd);
  close(fd);
}

// What an exception says: its type and text.
std::string ErrorText() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  std::string name = "an exception";
  if (type != nullptr) {
    int status = 0;
    std::unique_ptr<char, void (*)(void*)> clear(abi::__cxa_demangle(type->name(), nullptr, nullptr, &status),
                                                 &std::free);
    name = status == 0 ? clear.get() : type->name();
  }
  try {
    throw;
  } catch (const std::exception& error) {
    return name + ": " + error.what();
  } catch (...) {
    return name;
  }
}

class FunctionSession final : public Session {
 public:
  FunctionSession(void (*train)(Trial&), Beginning beginning) : Session(std::move(beginning)) {
    thread_ = std::thread([this, train] { Run(train); });
  }
  ~FunctionSession() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  std::vector<Said> Next() override {
    std::unique_lock lock(mutex_);
    unanswered_ -= taken_;
    taken_ = 0;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !queue_.empty(); });
    std::vector<Said> said(std::make_move_iterator(queue_.begin()), std::make_move_iterator(queue_.end()));
    queue_.clear();
    for (const Said& each : said) taken_ += each.kind == Said::Kind::kResult ? 1 : 0;
    return said;
  }

  void Report(const Metrics& metrics, const std::string& folder) override {
    Said said = MakeResult(metrics, folder);
    std::unique_lock lock(mutex_);
    if (stop_) throw Stopped{};
    queue_.push_back(std::move(said));
    ++unanswered_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return stop_ || unanswered_ < beginning().window; });
    if (stop_) throw Stopped{};
  }

 private:
  void Run(void (*train)(Trial&)) {
    Said last;
    last.kind = Said::Kind::kFinished;
    try {
      Trial trial(*this);
      train(trial);
    } catch (const Stopped&) {
      return;
    } catch (...) {
      last.kind = Said::Kind::kError;
      last.text = ErrorText();
    }
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(last));
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Said> queue_;
  int unanswered_ = 0;  // results that no later Next has answered
  int taken_ = 0;       // of these, given out by the last Next
  bool stop_ = false;
  std::thread thread_;
};

class ClassSession final : public Session {
 public:
  ClassSession(Trainable* (*make)(), Beginning beginning) : Session(std::move(beginning)), trainable_(make()) {
    trainable_->Setup(this->beginning().config);
    if (!checkpoint_folder().empty()) trainable_->LoadCheckpoint(checkpoint_folder());
  }
  ~ClassSession() override { trainable_->Cleanup(); }

  std::vector<Said> Next() override {
    std::vector<Said> said;
    try {
      said.push_back(MakeResult(trainable_->Step(), kNoCheckpoint));
      TrialResult& result = said.back().result;
      result.done = Flag(result.metrics, "done");
      result.save = Flag(result.metrics, "should_checkpoint");
    } catch (...) {
      Said failed;
      failed.kind = Said::Kind::kError;
      failed.text = ErrorText();
      said.push_back(std::move(failed));
    }
    return said;
  }
  std::optional<Checkpoint> Save() override {
    const std::string folder = NewFolder();
    trainable_->SaveCheckpoint(folder);
    return KeepCheckpoint(folder);
  }
  bool Reset(const Beginning& next) override {
    if (!trainable_->ResetConfig(next.config)) return false;
    Begin(next);
    if (!checkpoint_folder().empty()) trainable_->LoadCheckpoint(checkpoint_folder());
    return true;
  }

 private:
  static bool Flag(const Metrics& metrics, const char* key) {
    auto found = metrics.find(key);
    return found != metrics.end() && std::holds_alternative<bool>(found->second) && std::get<bool>(found->second);
  }
  std::unique_ptr<Trainable> trainable_;
};

}  // namespace

void ThrowWrongType(const std::string& key, const Value& value, const char* wanted) {
  std::string text;
  loggers::AppendText(text, value);
  throw std::invalid_argument("the value of \"" + key + "\" is " + text + ", not " + wanted);
}

Session::Session(Beginning beginning) { Begin(std::move(beginning)); }

void Session::Begin(Beginning beginning) {
  beginning_ = std::move(beginning);
  iteration_ = 0;
  time_total_ = 0;
  checkpoint_folder_.clear();
  if (beginning_.checkpoint) {
    checkpoint_folder_ = beginning_.run_folder + "/" + beginning_.checkpoint->path;
    iteration_ = beginning_.checkpoint->iteration;
    time_total_ = beginning_.checkpoint->time_total;
  }
  last_ = Seconds();
}

std::string Session::NewFolder() {
  const std::string folder = beginning_.folder + "/." + CheckpointName(beginning_.next_checkpoint) + ".tmp";
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

// The folder gets its name only when it is complete, so a partial checkpoint never exists.
Checkpoint Session::KeepCheckpoint(const std::string& folder) {
  const std::string name = CheckpointName(beginning_.next_checkpoint);
  const std::string temporary = beginning_.folder + "/." + name + ".tmp";
  if (folder != temporary) {
    fs::remove_all(temporary);
    fs::copy(folder, temporary, fs::copy_options::recursive);
  }
  std::ofstream(temporary + "/.metadata.json") << "{}";
  for (const auto& entry : fs::recursive_directory_iterator(temporary)) {
    if (!entry.is_regular_file()) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    (void)fdatasync(fd);
    close(fd);
  }
  const std::string final_name = beginning_.folder + "/" + name;
  fs::remove_all(final_name);  // of a life before a crash that the journal does not know
  fs::rename(temporary, final_name);
  SyncFolder(beginning_.folder);
  Checkpoint checkpoint;
  checkpoint.path = fs::path(beginning_.folder).filename().string() + "/" + name;
  checkpoint.index = beginning_.next_checkpoint++;
  checkpoint.iteration = iteration_;
  checkpoint.time_total = time_total_;
  return checkpoint;
}

Said Session::MakeResult(const Metrics& metrics, const std::string& folder) {
  const double now = Seconds();
  Said said;
  said.origin.time_this_iter = now - last_;
  time_total_ += now - last_;
  last_ = now;
  ++iteration_;
  said.result.trial = beginning_.trial;
  said.result.iteration = iteration_;
  said.result.time_total = time_total_;
  said.result.metrics = metrics;
  if (!folder.empty()) said.result.checkpoint = KeepCheckpoint(folder);
  said.origin.pid = getpid();
  said.origin.hostname = HostName();
  said.origin.node_ip = "127.0.0.1";
  said.origin.timestamp = WallSeconds();
  return said;
}

std::unique_ptr<Session> RunFunction(void (*train)(Trial&), Beginning beginning) {
  return std::make_unique<FunctionSession>(train, std::move(beginning));
}
std::unique_ptr<Session> RunTrainable(Trainable* (*make)(), Beginning beginning) {
  return std::make_unique<ClassSession>(make, std::move(beginning));
}

}  // namespace internal

const Config& Trial::config() const { return session_.beginning().config; }

const Value& Trial::Find(const std::string& key) const {
  auto found = config().find(key);
  if (found != config().end()) return found->second;
  std::vector<std::string> keys;
  for (const auto& [each, value] : config()) keys.push_back(each);
  throw std::invalid_argument("the configuration of trial " + std::to_string(number()) + " has no key \"" + key +
                              "\"; it has: " + trials::Join(keys) + "." + trials::Suggest(key, keys));
}

bool Trial::Restored() const { return !session_.checkpoint_folder().empty(); }

const std::string& Trial::CheckpointFolder() const {
  if (!Restored()) {
    throw std::logic_error("trial " + std::to_string(number()) +
                           " begins without a checkpoint; ask Restored() before CheckpointFolder()");
  }
  return session_.checkpoint_folder();
}

std::string Trial::NewFolder() { return session_.NewFolder(); }
void Trial::Report(const Metrics& metrics, const std::string& checkpoint) { session_.Report(metrics, checkpoint); }
std::int64_t Trial::iteration() const { return session_.iteration(); }
TrialNumber Trial::number() const { return session_.beginning().trial; }
const std::string& Trial::id() const { return session_.beginning().id; }
const std::string& Trial::folder() const { return session_.beginning().folder; }

}  // namespace manta::tune
