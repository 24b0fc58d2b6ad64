#include "node/incoming.h"

#include <algorithm>

#include "types/text.h"

namespace manta::node {

Incoming::Incoming(store::StoreClient& client, ProcessId owner, const Id& object, const Place& origin,
                   std::size_t part_bytes)
    : client_(client),
      owner_(owner),
      object_(object),
      origin_(origin),
      part_bytes_(part_bytes),
      states_(std::max<std::uint64_t>((origin.size + part_bytes - 1) / part_bytes, 1), State::kMissing) {}

Incoming::~Incoming() {
  client_.Close(view_);
  client_.Abort(room_);
}

std::uint64_t Incoming::bytes(std::size_t part) const {
  return std::min<std::uint64_t>(part_bytes_, origin_.size - offset(part));
}

Status Incoming::Prepare() {
  {
    const std::lock_guard lock(mutex_);
    if (data_ != nullptr || !prepared_.ok()) return prepared_;
    if (abandoned_) return Status(Code::kCancelled, "nobody wants it any more");
  }
  Result<store::Allocation> room = client_.Allocate(object_, owner_, origin_.size);
  const std::lock_guard lock(mutex_);
  if (!room.ok()) {
    prepared_ = room.status();
  } else {
    room_ = *room;
    data_ = room->data;
  }
  return prepared_;
}

bool Incoming::Claim(std::size_t* part) {
  const std::lock_guard lock(mutex_);
  if (abandoned_) return false;
  while (next_ < states_.size() && states_[next_] != State::kMissing) ++next_;
  if (next_ == states_.size()) return false;
  states_[next_] = State::kClaimed;
  *part = next_++;
  return true;
}

std::span<std::byte> Incoming::Room(std::size_t part) {
  const std::lock_guard lock(mutex_);
  return {data_ + offset(part), bytes(part)};
}

void Incoming::Done(std::size_t part) {
  const std::lock_guard lock(mutex_);
  if (states_[part] == State::kThere) return;
  states_[part] = State::kThere;
  ++there_;
  changed_.notify_all();
}

void Incoming::Unclaim(std::size_t part) {
  const std::lock_guard lock(mutex_);
  if (states_[part] != State::kClaimed) return;
  states_[part] = State::kMissing;
  next_ = std::min(next_, part);
}

std::size_t Incoming::missing() const {
  const std::lock_guard lock(mutex_);
  return states_.size() - there_;
}

Result<Place> Incoming::Seal() {
  const std::lock_guard lock(mutex_);
  const Place place = client_.Seal(room_);
  // Pinned at once: who passes it on reads it through this object.
  Result<store::View> view = client_.Open(object_, place);
  if (!view.ok()) {
    data_ = nullptr;
    abandoned_ = true;
    changed_.notify_all();
    return view.status();
  }
  view_ = *view;
  return place;
}

std::span<const std::byte> Incoming::Await(std::uint64_t offset, std::uint64_t bytes) {
  if (offset > origin_.size || bytes > origin_.size - offset) return {};
  std::unique_lock lock(mutex_);
  const std::size_t first = offset / part_bytes_;
  const std::size_t last = bytes == 0 ? first : (offset + bytes - 1) / part_bytes_;
  changed_.wait(lock, [&] {
    if (abandoned_) return true;
    for (std::size_t part = first; part <= last && part < states_.size(); ++part) {
      if (states_[part] != State::kThere) return false;
    }
    return true;
  });
  if (abandoned_) return {};
  return {data_ + offset, bytes};
}

void Incoming::Abandon() {
  const std::lock_guard lock(mutex_);
  if (there_ == states_.size()) return;  // is whole
  abandoned_ = true;
  changed_.notify_all();
}

}  // namespace manta::node
