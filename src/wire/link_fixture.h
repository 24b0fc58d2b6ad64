// For tests of what listens and dials: a cluster's folder, a listener, and both ends on one loop.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/loop.h"
#include "wire/dial.h"
#include "wire/listener.h"
#include "wire/scratch_folder.h"

namespace manta::wire {

class LinkFixture : public testing::Test {
 protected:
  LinkFixture() : loop_(std::move(*base::Loop::Create())), secrets_(NewSecrets("head")) {}
  ~LinkFixture() override { listener_.reset(); }

  std::shared_ptr<Secrets> NewSecrets(const std::string& name) {
    Result<std::shared_ptr<Secrets>> made = Secrets::OpenOrCreate(scratch_ / name);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *made;
  }

  void Listen(ListenOptions options = {}) {
    if (!options.secrets) options.secrets = secrets_;
    Result<std::unique_ptr<Listener>> made = Listener::Create(
        *loop_, std::move(options), [this](Link link) { links_.push_back(std::move(link)); },
        [this](const std::string&, const Status& what) { notes_.push_back(what.message()); });
    ASSERT_TRUE(made.ok()) << made.status().message();
    listener_ = std::move(*made);
  }

  DialOptions Options(LinkRole role = LinkRole::kNode) {
    DialOptions options;
    options.role = role;
    options.secrets = secrets_;
    return options;
  }

  // Runs the loop until `done`, or fails after five seconds.
  void RunUntil(const std::function<bool()>& done) {
    const std::int64_t deadline = base::NowMicros() + 5'000'000;
    while (!done()) {
      ASSERT_LT(base::NowMicros(), deadline) << "took too long";
      loop_->RunOnce(10'000);
    }
  }

  Result<Link> DialOne(DialOptions options) { return DialOne(listener_->address(), std::move(options)); }
  Result<Link> DialOne(const std::string& address, DialOptions options) {
    Result<Link> result = Status(Code::kUnavailable, "not called back");
    bool done = false;
    Dial dial(*loop_, address, std::move(options), [&](Result<Link> link) {
      result = std::move(link);
      done = true;
    });
    RunUntil([&] { return done; });
    return result;
  }

  // Both ends of a fresh link.
  void Connect(DialOptions options, Link* dialled, Link* accepted) {
    const std::size_t before = links_.size();
    Result<Link> link = DialOne(std::move(options));
    ASSERT_TRUE(link.ok()) << link.status().message();
    RunUntil([&] { return links_.size() > before; });
    *dialled = std::move(*link);
    *accepted = std::move(links_.back());
    links_.pop_back();
  }

  const ListenCounters& counters() { return listener_->counters(); }

  ScratchFolder scratch_;
  std::unique_ptr<base::Loop> loop_;
  std::shared_ptr<Secrets> secrets_;
  std::unique_ptr<Listener> listener_;
  std::vector<Link> links_;
  std::vector<std::string> notes_;
};

}  // namespace manta::wire
