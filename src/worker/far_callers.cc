#include "worker/far_callers.h"

#include <cstring>
#include <future>
#include <utility>

#include "shm/spec.h"
#include "wire/cluster_messages.h"

namespace manta::worker {
namespace {

constexpr std::int64_t kGoodbyeUs = 5'000'000;  // for an owner to answer our farewell
constexpr std::size_t kBatchBytes = 16U << 10;  // of replies, while there is more to run

std::uint64_t TokenOf(const std::byte* spec) {
  shm::SpecHeader header;
  std::memcpy(&header, spec, sizeof header);
  return shm::TaskToken(header.entry, header.generation);
}

}  // namespace

FarCaller::FarCaller(owner::Owner& host, ProcessId owner, const Memory& memory, bool prompt, std::function<void()> wake)
    : host_(host),
      owner_(owner),
      arena_(memory.arena),
      queue_(memory.queue),
      lane_(memory.lane),
      prompt_(prompt),
      wake_(std::move(wake)),
      chunks_(memory.chunks),
      log_(*arena_, *chunks_),
      ring_(arena_->at(queue_)) {
  shm::LaneReader reader(arena_->at(lane_));  // makes it like new
  reader.memory().index = 1;
}

// ---- the worker's threads ----

void FarCaller::Reply(const shm::ReplyHeader& header, std::span<const std::byte> payload) {
  const std::lock_guard lock(mutex_);
  shm::ReplyHeader full = header;
  full.size = static_cast<std::uint32_t>(payload.size());
  full.bytes = static_cast<std::uint32_t>(sizeof full + shm::Padded(payload.size()));
  replies_.append(reinterpret_cast<const char*>(&full), sizeof full);
  replies_.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  replies_.resize(replies_.size() + full.bytes - sizeof full - payload.size());
}

void FarCaller::Started(std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  if (link_ == nullptr) return;
  SendReplies();  // this call may be the end of us
  link_->Send(wire::FarStarted{token});
}

FarCaller::Pending FarCaller::pending() {
  const std::lock_guard lock(mutex_);
  if (replies_.empty()) return Pending::kNone;
  return prompt_ || replies_.size() >= kBatchBytes ? Pending::kDue : Pending::kSome;
}

std::uint64_t FarCaller::Given() {
  const std::lock_guard lock(mutex_);
  return left_ + replies_.size();
}

void FarCaller::SendUpTo(std::uint64_t mark) {
  const std::lock_guard lock(mutex_);
  if (mark > left_) SendFirst(static_cast<std::size_t>(mark - left_));
}

void FarCaller::SendFirst(std::size_t bytes) {
  if (bytes == 0) return;
  if (link_ != nullptr) {
    link_->Send(wire::EncodeFrame(wire::kFarReplies, 0, std::as_bytes(std::span(replies_)).first(bytes), 0));
  }
  replies_.erase(0, bytes);
  left_ += bytes;
}

void FarCaller::Return(std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    returning_ = true;
    if (!closed_ && link_ != nullptr) {
      done_ = std::move(done);
      GiveBack();
      link_->Send(wire::FarBye{});
      link_->CloseLater(kGoodbyeUs);
      return;
    }
  }
  done();
}

// ---- the far thread ----

void FarCaller::Connected(std::shared_ptr<far::Link> link) {
  const std::lock_guard lock(mutex_);
  link_ = std::move(link);
}

void FarCaller::OnFrame(wire::Frame& frame) {
  if (frame.kind == wire::kFarCalls) {
    Take(frame.body);
    return;
  }
  if (frame.As<wire::FarBye>().ok()) {
    const std::lock_guard lock(mutex_);
    GiveBack();
    link_->CloseAfterSending();
    return;
  }
  if (frame.As<wire::FarTakeBack>().ok()) {
    const std::lock_guard lock(mutex_);
    GiveBack();
    return;
  }
  if (Result<wire::FarCancel> cancel = frame.As<wire::FarCancel>(); cancel.ok()) {
    const std::lock_guard lock(mutex_);
    bool waits = false;
    ring_.ForReady([&](std::uint64_t spec, std::uint64_t position) {
      if (TokenOf(arena_->at(spec)) == (cancel->token & ~shm::kCancelTree) && ring_.TryTake(position)) waits = true;
    });
    if (waits) {
      link_->Send(wire::FarReturned{{cancel->token & ~shm::kCancelTree}});
    } else {
      reinterpret_cast<shm::LaneMemory*>(arena_->at(lane_))->cancel.store(cancel->token, std::memory_order_release);
    }
  }
}

void FarCaller::OnClosed() {
  std::function<void()> done;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    done = std::exchange(done_, nullptr);
    // Nobody waits for these any more.
    ring_.ForReady([&](std::uint64_t, std::uint64_t position) { static_cast<void>(ring_.TryTake(position)); });
    waiting_.clear();
  }
  over_.store(true, std::memory_order_release);
  if (done) done();
  wake_();
}

void FarCaller::Take(std::string_view specs) {
  std::vector<std::uint64_t> refused;
  wire::FetchAhead ahead;
  {
    const std::lock_guard lock(mutex_);
    Reap();
    while (specs.size() >= sizeof(shm::SpecHeader)) {
      shm::SpecHeader header;
      std::memcpy(&header, specs.data(), sizeof header);
      if (header.bytes < sizeof header || (header.bytes & 7) != 0 || header.bytes > specs.size()) {
        link_->Close();  // nonsense
        return;
      }
      const std::uint64_t offset = returning_ ? 0 : log_.Append(header.bytes);
      if (offset == 0) {
        refused.push_back(shm::TaskToken(header.entry, header.generation));
      } else {
        std::memcpy(arena_->at(offset), specs.data(), header.bytes);
        waiting_.push_back(offset);
        Needs(arena_->at(offset), header.bytes, &ahead);
      }
      specs.remove_prefix(header.bytes);
    }
    PushWaiting();
    if (!refused.empty()) link_->Send(wire::FarReturned{std::move(refused)});
  }
  host_.bell().Ring();
  if (!ahead.objects.empty()) static_cast<void>(host_.link().Send(ahead));
}

void FarCaller::Needs(const std::byte* spec, std::uint64_t bytes, wire::FetchAhead* ahead) const {
  Result<shm::SpecReader> reader = shm::SpecReader::Open(spec, bytes);
  if (!reader.ok()) return;  // the worker will say so
  for (Result<shm::SpecReader::Item> item = reader->Next(); item.ok(); item = reader->Next()) {
    if (item->kind != shm::ItemKind::kStored) continue;
    shm::StoredItem stored;
    std::memcpy(&stored, item->data, sizeof stored);
    if (stored.place.nowhere() || stored.place.node == host_.welcome().number) continue;
    ahead->objects.push_back(stored.object);
    ahead->places.push_back(stored.place);
    ahead->owners.push_back(stored.owner);
  }
}

void FarCaller::PushWaiting() {
  while (!waiting_.empty()) {
    std::uint64_t position = 0;
    shm::QueueOwner::Displaced displaced;
    // A slot that a long call still has: wait for it. Its spec must not be forgotten.
    if (ring_.tail() - reaped_ >= shm::kQueueSlots) return;
    if (!ring_.Push(waiting_.front(), &position, &displaced)) return;
    waiting_.pop_front();
  }
}

// Drops the specs of calls that are over, in their order.
void FarCaller::Reap() {
  shm::QueueMemory& memory = ring_.memory();
  while (reaped_ < ring_.tail()) {
    shm::QueueMemory::Slot& slot = memory.slots[reaped_ % shm::kQueueSlots];
    const shm::Claim claim = shm::Unpack(slot.claim.load(std::memory_order_acquire));
    if (claim.state == shm::SlotState::kReady || claim.state == shm::SlotState::kClaimed) break;
    log_.Drop(slot.spec.load(std::memory_order_relaxed));
    ++reaped_;
  }
  for (const std::uint64_t spec : unneeded_) log_.Drop(spec);
  unneeded_.clear();
  PushWaiting();
}

void FarCaller::GiveBack() {
  std::vector<std::uint64_t> tokens;
  ring_.ForReady([&](std::uint64_t spec, std::uint64_t position) {
    if (ring_.TryTake(position)) tokens.push_back(TokenOf(arena_->at(spec)));
  });
  for (const std::uint64_t spec : waiting_) {
    tokens.push_back(TokenOf(arena_->at(spec)));
    unneeded_.push_back(spec);
  }
  waiting_.clear();
  SendReplies();
  if (!tokens.empty()) link_->Send(wire::FarReturned{std::move(tokens)});
}

// ---- all of them ----

Result<std::string> FarCallers::Listen() {
  if (!address_.empty()) return address_;
  Result<far::Thread*> thread = owner_.FarThread();
  if (!thread.ok()) return thread.status();
  Result<std::shared_ptr<wire::Secrets>> secrets = owner_.Secrets();
  if (!secrets.ok()) return secrets.status();
  Result<shm::Arena> arena = shm::Arena::Create();
  if (!arena.ok()) return arena.status();
  wire::ListenOptions options;
  options.address = owner_.welcome().listen.empty() ? "127.0.0.1:0" : owner_.welcome().listen;
  options.secrets = *secrets;
  options.roles = wire::RoleBit(wire::LinkRole::kOwner);
  options.tls = owner_.welcome().tls;
  std::promise<Status> listening;
  (*thread)->Post([&] {
    Result<std::unique_ptr<wire::Listener>> made =
        wire::Listener::Create((*thread)->loop(), options, [this](wire::Link link) { Accept(std::move(link)); });
    if (made.ok()) listener_ = std::move(*made);
    listening.set_value(made.status());
  });
  if (Status s = listening.get_future().get(); !s.ok()) return s;
  arena_ = std::make_shared<shm::Arena>(std::move(*arena));
  thread_ = *thread;
  address_ = listener_->address();
  return address_;
}

Result<std::shared_ptr<FarCaller>> FarCallers::Expect(std::uint64_t pass, ProcessId owner, bool prompt) {
  if (address_.empty()) return Status(Code::kUnavailable, "this worker does not listen");
  std::promise<std::shared_ptr<FarCaller>> made;
  thread_->Post([&] {
    const std::uint64_t queue = chunks_->Allocate(sizeof(shm::QueueMemory));
    const std::uint64_t lane = chunks_->Allocate(shm::kLaneBytes);
    if (queue == 0 || lane == 0) return made.set_value(nullptr);
    // Its memory is the far thread's to give back.
    const auto destroy = [this](FarCaller* caller) {
      thread_->Post([this, caller] {
        const std::uint64_t its_queue = caller->queue();
        const std::uint64_t its_lane = caller->lane();
        delete caller;
        chunks_->Free(its_queue, sizeof(shm::QueueMemory));
        chunks_->Free(its_lane, shm::kLaneBytes);
      });
    };
    const FarCaller::Memory memory{arena_, chunks_, queue, lane};
    made.set_value(std::shared_ptr<FarCaller>(
        new FarCaller(owner_, owner, memory, prompt, [this] { owner_.bell().Ring(); }), destroy));
  });
  std::shared_ptr<FarCaller> caller = made.get_future().get();
  if (caller == nullptr) return Status(Code::kOutOfMemory, "too many callers on other nodes for one worker");
  const std::lock_guard lock(mutex_);
  expected_[pass] = caller;
  return caller;
}

void FarCallers::Accept(wire::Link accepted) {
  auto link = std::make_shared<far::Link>(*thread_, std::move(accepted.stream));
  auto caller = std::make_shared<std::shared_ptr<FarCaller>>();  // none until it has shown its pass
  const std::weak_ptr<far::Link> weak = link;
  link->Start(
      [this, weak, caller](wire::Frame& frame) {
        if (*caller != nullptr) return (*caller)->OnFrame(frame);
        const std::shared_ptr<far::Link> self = weak.lock();
        if (self == nullptr) return;
        Result<wire::OwnerHello> hello = frame.As<wire::OwnerHello>();
        {
          const std::lock_guard lock(mutex_);
          const auto it = hello.ok() ? expected_.find(hello->pass) : expected_.end();
          if (it != expected_.end() && it->second->owner() == hello->owner) {
            *caller = it->second;
            expected_.erase(it);
          }
        }
        if (*caller == nullptr) {
          self->Send(wire::Failed{Failure{Code::kNotFound, "this worker expects nobody with that pass", {}, {}}},
                     frame.call);
          self->CloseAfterSending();
          return;
        }
        (*caller)->Connected(self);
        self->Send(wire::OwnerWelcome{owner_.self()}, frame.call);
      },
      [caller](const Status&) {
        if (*caller != nullptr) (*caller)->OnClosed();
      });
}

}  // namespace manta::worker
