// Incoming is an object on its way into this node's store: its room, and which parts of it are there. While it comes,
// it can be read by those who pass it on (rules/broadcast.h).
//
// Parts are claimed by the streams that fetch them, in order; what a broken stream had claimed is claimed again by
// another, of the same source or of the next one. Each part is written by whoever claimed it, and then only read.
//
// Threads: any; guarded inside. Lives as long as anybody reads or writes it; then the copy is unpinned or, if it never
// became whole, given up.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "store/client.h"
#include "types/id.h"
#include "types/place.h"
#include "types/status.h"

namespace manta::node {

class Incoming {
 public:
  // `origin`: where it was made. The client outlives this.
  Incoming(store::StoreClient& client, ProcessId owner, const Id& object, const Place& origin, std::size_t part_bytes);
  ~Incoming();
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  [[nodiscard]] const Id& object() const { return object_; }
  [[nodiscard]] const Place& origin() const { return origin_; }
  [[nodiscard]] std::size_t parts() const { return states_.size(); }
  [[nodiscard]] std::uint64_t offset(std::size_t part) const { return part * part_bytes_; }
  [[nodiscard]] std::uint64_t bytes(std::size_t part) const;

  // Room in the store. Waits for it; the first failure stays.
  Status Prepare();
  // A part that nobody has or fetches, to be written to Room. False: there is none now.
  bool Claim(std::size_t* part);
  [[nodiscard]] std::span<std::byte> Room(std::size_t part);
  void Done(std::size_t part);
  void Unclaim(std::size_t part);
  [[nodiscard]] std::size_t missing() const;  // parts that are not there
  // All parts are there: publishes the copy. Once.
  Result<Place> Seal();

  // Waits until these bytes are there. Empty: they will never be. Good as long as this object.
  std::span<const std::byte> Await(std::uint64_t offset, std::uint64_t bytes);
  // Nobody fetches it any more.
  void Abandon();

 private:
  enum class State : std::uint8_t { kMissing, kClaimed, kThere };

  store::StoreClient& client_;
  const ProcessId owner_;
  const Id object_;
  const Place origin_;
  const std::size_t part_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> states_;
  std::size_t next_ = 0;   // parts below are claimed or there
  std::size_t there_ = 0;  // how many
  bool abandoned_ = false;
  Status prepared_;
  std::byte* data_ = nullptr;
  store::Allocation room_;
  store::View view_;  // once it is sealed, so that it stays
};

}  // namespace manta::node
