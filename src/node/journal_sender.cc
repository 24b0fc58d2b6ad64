#include "node/journal_sender.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "shm/journal.h"
#include "shm/journal_copy.h"

namespace manta::node {
namespace {

class Sending : public std::enable_shared_from_this<Sending> {
 public:
  Sending(NodeLinks& links, const JournalOrder& order, shm::Mapping map, std::vector<JournalRange> ranges)
      : links_(links), order_(order), map_(std::move(map)), ranges_(std::move(ranges)) {}

  void Begin(std::function<void(const Status&)> done) {
    done_ = std::move(done);
    GoOn();
  }

 private:
  void GoOn() {
    while (status_.ok() && next_ < ranges_.size() && under_way_ < kPieces) SendPiece();
    if (under_way_ > 0 || (status_.ok() && next_ < ranges_.size()) || done_ == nullptr) return;
    std::exchange(done_, nullptr)(status_);
  }
  void SendPiece() {
    JournalRange& range = ranges_[next_];
    const JournalRange piece{range.offset, std::min(range.bytes, kPieceBytes)};
    range.offset += piece.bytes;
    range.bytes -= piece.bytes;
    if (range.bytes == 0) ++next_;
    ++under_way_;
    links_.Call<wire::Done>(order_.to,
                            wire::FarJournal{order_.actor, order_.epoch, shm::Read(map_.data(), {piece}), order_.use},
                            [self = shared_from_this()](const Result<wire::Done>& done) {
                              --self->under_way_;
                              if (!done.ok()) self->status_ = done.status();
                              self->GoOn();
                            });
  }

  NodeLinks& links_;
  const JournalOrder order_;
  const shm::Mapping map_;
  std::vector<JournalRange> ranges_;
  std::size_t next_ = 0;
  std::uint64_t under_way_ = 0;
  Status status_;
  std::function<void(const Status&)> done_;
};

}  // namespace

void SendJournal(NodeLinks& links, const JournalOrder& order, const base::Fd& journal, std::vector<JournalRange> ranges,
                 std::function<void(const Status&)> done) {
  if (const Status inside = shm::Check(ranges); !inside.ok()) return done(inside);
  Result<shm::Mapping> map = shm::Mapping::Of(journal.get(), 0, shm::kJournalBytes, false);
  if (!map.ok()) return done(map.status());
  std::make_shared<Sending>(links, order, std::move(*map), std::move(ranges))->Begin(std::move(done));
}

void SendWholeJournal(NodeLinks& links, const JournalOrder& order, const base::Fd& journal,
                      std::function<void(const Status&)> done) {
  if (!journal.valid()) return done({});
  Result<shm::Mapping> map = shm::Mapping::Of(journal.get(), 0, shm::kJournalBytes, false);
  if (!map.ok()) return done(map.status());
  std::vector<JournalRange> ranges;
  if (reinterpret_cast<const shm::JournalMemory*>(map->data())->magic != 0) {
    shm::JournalMarks marks;
    ranges = shm::RangesOf(map->data(), &marks);
    if (ranges.empty()) ranges.push_back({0, sizeof(shm::JournalMemory)});
  }  // else it has done nothing yet, which is said by a message without parts
  if (shm::BytesOf(ranges) > kPieceBytes) {
    return std::make_shared<Sending>(links, order, std::move(*map), std::move(ranges))->Begin(std::move(done));
  }
  links.Send(order.to, wire::FarJournal{order.actor, order.epoch, shm::Read(map->data(), ranges), order.use});
  done({});
}

}  // namespace manta::node
