// ControlClient is how any process speaks with the control store: typed requests with callbacks, and watches.
//
// It keeps one connection, made by a function it is given, and makes it again, with growing pauses, whenever it is
// lost. Requests that have no answer are then sent again, writes under the same number, so that each takes effect once.
// What has not been answered for `patience` fails with kUnavailable; whether such a write took effect is unknown.
//
// A watch survives reconnections: on_reset says that all that was told before may be out of date; what is there now
// follows, as at the start. A watch that the store ends (because its reader was too slow) is told on_end, and is gone.
//
// Threads: one loop's, which callbacks run on, never before the call returns, except that Unwatch and the destructor
// drop theirs. A callback may start requests and drop watches; it must not destroy the client.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "types/status.h"
#include "wire/connection.h"
#include "wire/control_messages.h"

namespace manta::wire {

struct ControlClientOptions {
  Id client;                              // empty: drawn at random
  std::int64_t patience_us = 30'000'000;  // far below the hour after which the store forgets a silent client
  std::int64_t first_pause_us = 1'000;    // before connecting again; doubles
  std::int64_t longest_pause_us = 500'000;
};

class ControlClient {
 public:
  // Gives a connected, authenticated, non-blocking socket, now or later, once.
  using Connected = std::function<void(Result<base::Fd>)>;
  using Connect = std::function<void(Connected done)>;
  using OnValue = std::function<void(Result<ControlValue>)>;  // version 0: there is no such key
  using OnWritten = std::function<void(Result<ControlWritten>)>;
  using OnEntries = std::function<void(Result<ControlEntries>)>;
  using OnAll = std::function<void(Result<std::vector<ControlEntry>>)>;
  using WatchId = std::uint64_t;
  struct Watcher {
    std::function<void(std::vector<ControlChange>& changes, bool complete)> on_changes;
    std::function<void()> on_reset;                 // may be null
    std::function<void(const Status& why)> on_end;  // may be null
  };

  ControlClient(base::Loop& loop, Connect connect, ControlClientOptions options = {});
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  void Get(Table table, std::string key, OnValue done);
  void Put(Table table, std::string key, std::string value, OnWritten done);
  void PutIfAbsent(Table table, std::string key, std::string value, OnWritten done);
  // Only if the key has `version`; 0: only if there is no such key. No value: delete.
  void CompareAndSet(Table table, std::string key, std::uint64_t version, std::optional<std::string> value,
                     OnWritten done);
  void Delete(Table table, std::string key, OnWritten done);
  // One page.
  void Scan(Table table, std::string prefix, std::string after, std::uint32_t limit, OnEntries done);
  // All pages.
  void ScanAll(Table table, std::string prefix, OnAll done);

  WatchId Watch(Table table, std::string prefix, Watcher watcher);
  void Unwatch(WatchId watch);

  // Called when the store was reached (ok) and when it was lost (why).
  void OnState(std::function<void(const Status&)> callback) { on_state_ = std::move(callback); }
  [[nodiscard]] bool connected() const { return welcomed_; }
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }  // of the store, when last reached
  [[nodiscard]] const Id& id() const { return options_.client; }

 private:
  struct Request {
    std::string frame;
    std::int64_t until = 0;      // by the clock
    std::uint64_t sequence = 0;  // of a write; 0: none
    std::function<void(Result<Frame*>)> done;
  };
  struct Watched {
    Table table = Table::kKeyValue;
    std::string prefix;
    Watcher watcher;
    bool told = false;  // something, over this or an earlier connection
  };

  struct Gathered {
    Table table = Table::kKeyValue;
    std::string prefix;
    std::vector<ControlEntry> entries;
    OnAll done;
  };

  void Write(ControlWrite write, OnWritten done);
  void ScanMore(const std::shared_ptr<Gathered>& gathered);
  template <typename Answer, typename M>
  void Ask(const M& message, std::uint64_t sequence, std::function<void(Result<Answer>)> done);
  [[nodiscard]] bool MaySend(const Request& request) const;
  void ReleaseHeld();
  void StartConnecting();
  void OnConnected(Result<base::Fd> socket);
  void OnFrame(Frame& frame);
  void OnAnswer(Frame& frame);
  void OnLost(const Status& why);
  void ConnectLater(const Status& why);
  void Welcomed(const ControlWelcome& welcome);
  void SetTimer();
  void GiveUpOld();

  base::Loop& loop_;
  Connect connect_;
  ControlClientOptions options_;
  std::unique_ptr<Connection> connection_;
  bool welcomed_ = false;
  std::uint64_t epoch_ = 0;
  Status trouble_;  // why there is no connection
  std::int64_t pause_us_ = 0;
  base::Loop::TimerId connecting_ = 0;
  std::int64_t lost_since_ = 0;

  std::uint64_t next_call_ = 2;  // 1 is the Hello's
  std::uint64_t next_sequence_ = 1;
  std::uint64_t next_watch_ = 1;
  std::map<std::uint64_t, Request> requests_;          // by call: in the order asked
  std::map<std::uint64_t, std::uint64_t> unanswered_;  // writes: call by sequence
  std::map<std::uint64_t, std::uint64_t> held_;        // of these, not sent for want of window
  std::unordered_map<WatchId, std::shared_ptr<Watched>> watches_;
  base::Loop::TimerId timer_ = 0;
  std::function<void(const Status&)> on_state_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// Connects to "@name" on this machine.
[[nodiscard]] ControlClient::Connect ConnectLocally(std::string address);

}  // namespace manta::wire
