// ChainClient numbers writes and sends them to the head, sends reads to the tail, and sends both again, writes under
// the same number, until they are answered: after a silence, a refusal, or a new configuration. Pure: no clock, socket,
// thread or lock. Only its driver's loop calls it.
//
// Any number of requests may be under way; writes that are more than the chain's window above the oldest unanswered one
// wait. Their order is that in which the head takes them: who needs an order waits for the answer.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rules/chain.h"

namespace manta::rules {

struct ChainWriteDone {
  std::uint64_t number = 0;
  std::uint64_t position = 0;
};
struct ChainReadDone {
  std::uint64_t number = 0;
  std::string value;
};
using ChainClientAction = std::variant<ChainSend, ChainWriteDone, ChainReadDone>;
using ChainClientActions = std::vector<ChainClientAction>;

class ChainClient {
 public:
  ChainClient(const Id& id, const ChainTimes& times, const ChainFaults& faults = {});

  // Returns the number under which it will be done.
  std::uint64_t Write(std::int64_t now_us, std::string payload, ChainClientActions* actions);
  // For somebody who numbers its writes itself, and keeps to the window.
  std::uint64_t WriteFor(std::int64_t now_us, const Id& client, std::uint64_t sequence, std::string payload,
                         ChainClientActions* actions);
  std::uint64_t Read(std::int64_t now_us, std::string what, ChainClientActions* actions);
  // Nobody waits for the answer any more; a write may take effect all the same, now or later.
  void GiveUp(std::uint64_t number);

  void Receive(std::int64_t now_us, const ChainMessage& message, ChainClientActions* actions);
  // A new link to this member: what was sent over the one before may be lost.
  void Connected(std::int64_t now_us, MemberId member, ChainClientActions* actions);
  void Tick(std::int64_t now_us, ChainClientActions* actions);

  [[nodiscard]] const ChainConfig& config() const { return config_; }
  [[nodiscard]] std::size_t unanswered() const { return requests_.size(); }

 private:
  struct Request {
    bool write = false;
    Id client;                   // of a write
    std::uint64_t sequence = 0;  // likewise
    std::string text;
    std::int64_t sent_us = 0;
    bool sent = false;
  };

  void Send(std::int64_t now_us, std::uint64_t number, Request& request, ChainClientActions* actions);
  void SendHeld(std::int64_t now_us, ChainClientActions* actions);
  [[nodiscard]] bool InWindow(const Request& request) const;
  void Finished(std::int64_t now_us, std::uint64_t number, ChainClientActions* actions);

  const Id id_;
  const ChainTimes times_;
  const ChainFaults faults_;
  ChainConfig config_;
  std::uint64_t next_number_ = 1;
  std::uint64_t next_sequence_ = 1;
  std::map<std::uint64_t, Request> requests_;
  std::map<std::pair<Id, std::uint64_t>, std::uint64_t> writes_;  // numbers
  std::set<std::uint64_t> own_;                                   // sequences of our own writes
  std::set<std::uint64_t> held_;                                  // numbers of writes that wait for the window
  std::int64_t asked_us_ = 0;
};

}  // namespace manta::rules
