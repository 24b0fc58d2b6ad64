#include "node/transfer_store.h"

#include <fcntl.h>

#include <memory>

#include "base/clock.h"
#include "store/pins.h"

namespace manta::node {

TransferStore::TransferStore(Mailbox& mailbox, store::Keeper& keeper, ProcessId self)
    : mailbox_(mailbox), keeper_(keeper), self_(self), board_(store::PinBoard::kBytes / 8) {
  auto* board = reinterpret_cast<std::byte*>(board_.data());
  keeper_.ProcessJoined(self_, board);
  client_.emplace(*this, self_, board);
}

TransferStore::~TransferStore() {
  client_.reset();
  keeper_.ProcessDied(self_, [](const Id&) { return false; }, base::NowMicros());
}

void TransferStore::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  answered_.notify_all();
}

template <typename T>
Result<T> TransferStore::Ask(std::function<void(std::function<void(Result<T>)>)> question) {
  // Shared with the answer, which may come when nobody waits any more.
  struct Answer {
    std::optional<Result<T>> result;
  };
  const auto answer = std::make_shared<Answer>();
  mailbox_.Post([this, answer, question = std::move(question)] {
    question([this, answer](Result<T> result) {
      const std::lock_guard lock(mutex_);
      answer->result.emplace(std::move(result));
      answered_.notify_all();
    });
  });
  std::unique_lock lock(mutex_);
  answered_.wait(lock, [&] { return stopped_ || answer->result.has_value(); });
  if (!answer->result.has_value()) return Status(Code::kUnavailable, "the node is shutting down");
  return std::move(*answer->result);
}

Result<store::LentSegment> TransferStore::Request(std::uint64_t bytes) {
  return Ask<store::LentSegment>([this, bytes](std::function<void(Result<store::LentSegment>)> reply) {
    keeper_.SegmentRequest(self_, bytes, base::NowMicros(), [reply](const Result<store::Keeper::Loan>& loan) {
      if (!loan.ok()) return reply(loan.status());
      store::LentSegment lent;
      lent.segment = loan.value().segment;
      lent.bytes = loan.value().bytes;
      lent.whole = loan.value().whole;
      lent.fd.Reset(fcntl(loan.value().fd, F_DUPFD_CLOEXEC, 3));
      if (!lent.fd.valid()) return reply(Status(Code::kIo, "out of file descriptors; raise `ulimit -n`"));
      reply(std::move(lent));
    });
  });
}

Result<store::OpenedSegment> TransferStore::Open(std::uint32_t segment) {
  return Ask<store::OpenedSegment>([this, segment](const std::function<void(Result<store::OpenedSegment>)>& reply) {
    Result<store::Keeper::Opened> opened = keeper_.OpenSegment(segment);
    if (!opened.ok()) return reply(opened.status());
    reply(store::OpenedSegment{opened->segment, opened->bytes, opened->offset, std::move(opened->fd)});
  });
}

Result<Place> TransferStore::Restore(const Id& object) {
  return Ask<Place>([this, object](std::function<void(Result<Place>)> reply) {
    keeper_.Restore(self_, object, base::NowMicros(), std::move(reply));
  });
}

void TransferStore::Free(std::vector<Id> objects, std::vector<Place> places) {
  mailbox_.Post([this, objects = std::move(objects), places = std::move(places)] {
    keeper_.FreeObjects(objects, places, base::NowMicros());
  });
}

void TransferStore::Return(std::uint32_t segment) {
  mailbox_.Post([this, segment] { keeper_.SegmentReturn(self_, segment, base::NowMicros()); });
}

}  // namespace manta::node
