// ClusterTest gives each test a private cluster of two CPUs and, afterwards, checks that it left no
// process, no descriptor and no file behind. Only the public API is used.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "manta/manta.h"
#include "processes.h"

namespace manta::testing {

class ClusterTest : public ::testing::Test {
 protected:
  // What Init gets; a theme that needs something else overrides it.
  [[nodiscard]] virtual Config MakeConfig() const {
    Config config;
    config.cpus = 2;
    config.store_bytes = 256ULL << 20;
    return config;
  }

  void SetUp() override {
    static int counter = 0;
    const std::string value = std::to_string(getpid()) + "." + std::to_string(++counter);
    setenv("MANTA_TEST_MARK", value.c_str(), 1);
    mark_ = "MANTA_TEST_MARK=" + value;
    folder_.emplace();
    setenv("TMPDIR", folder_->path().c_str(), 1);
    unsetenv("MANTA_ADDRESS");
    descriptors_ = OpenDescriptors();
    Init(MakeConfig());
  }

  void TearDown() override {
    const Cast cast = CastOf(mark_);
    Shutdown();
    EXPECT_FALSE(IsInitialized());
    EXPECT_TRUE(Eventually([&] { return Marked(mark_).empty(); }, 1s)) << "left behind: " << Describe(Marked(mark_));
    EXPECT_TRUE(SocketsOf({cast.daemon}).empty());
    EXPECT_LE(OpenDescriptors(), descriptors_);
    EXPECT_THAT(folder_->Files(), ::testing::IsEmpty());
    folder_.reset();
  }

  [[nodiscard]] Cast Processes() const { return CastOf(mark_); }
  // How another program reaches this cluster.
  [[nodiscard]] std::string Address() const {
    const std::vector<std::string> sockets = SocketsOf({Processes().daemon, getpid()});
    return sockets.empty() ? std::string() : sockets.front();
  }
  [[nodiscard]] const Folder& folder() const { return *folder_; }
  [[nodiscard]] const std::string& mark() const { return mark_; }

 private:
  std::string mark_;
  std::optional<Folder> folder_;
  std::size_t descriptors_ = 0;
};

// A sign that one process gives another through a file: "I have started", "you may end".
class Sign {
 public:
  Sign() : path_(folder_.path() + "/sign") {}
  [[nodiscard]] const std::string& path() const { return path_; }
  void Give() const { Give(path_); }
  [[nodiscard]] bool Await() const { return Await(path_); }

  static void Give(const std::string& path) { std::ofstream(path) << getpid(); }
  static bool Given(const std::string& path) { return access(path.c_str(), F_OK) == 0; }
  static bool Await(const std::string& path) {
    return Eventually([&] { return Given(path); }, 10s);
  }

 private:
  Folder folder_;
  std::string path_;
};

// A task that gives the sign and never ends by itself.
inline Ref<int> RunForEver(const Sign& started) {
  return Task([](const std::string& path) -> int {
           Sign::Give(path);
           for (;;) std::this_thread::sleep_for(1s);
         })
      .Remote(started.path());
}

// The text of the E that `call` throws; fails the test if it throws nothing or something else.
template <typename E, typename Call>
std::string MessageOf(Call call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw " << typeid(error).name() << " instead: " << error.what();
    return {};
  }
  ADD_FAILURE() << "did not throw";
  return {};
}

// Nanoseconds on a clock that all processes of the machine share.
inline std::int64_t Now() { return Clock::now().time_since_epoch().count(); }

}  // namespace manta::testing
