#include "node/transfer_threads.h"

#include <algorithm>
#include <set>
#include <utility>

#include "types/text.h"
#include "wire/cluster_messages.h"

namespace manta::node {
namespace {

constexpr std::size_t kMaxThreads = 256;   // that fetch
constexpr std::size_t kSpareThreads = 16;  // up to which further streams get one
constexpr std::size_t kAskedFor = 2;       // parts, of one stream
constexpr std::uint64_t kMaxPart = 64U << 20;

}  // namespace

// One attempt to fetch what an Incoming lacks from one source.
class TransferThreads::Pull {
 public:
  Pull(std::shared_ptr<Incoming> what, NodeNumber node, std::string where, OnEnd callback)
      : incoming(std::move(what)), from(node), address(std::move(where)), on_end(std::move(callback)) {}

  const std::shared_ptr<Incoming> incoming;
  const NodeNumber from;
  const std::string address;
  const OnEnd on_end;
  std::mutex mutex;        // guards what follows
  std::size_t active = 1;  // streams that have begun; the first has
  bool ended = false;
  bool stopped = false;
  bool refused = false;
  bool source_gone = false;
  Status failure;
  std::set<const TransferWire*> wires;

  // A further stream. False: it comes too late.
  bool Begin() {
    const std::lock_guard lock(mutex);
    if (ended) return false;
    ++active;
    return true;
  }
  bool Enter(const TransferWire* wire) {
    const std::lock_guard lock(mutex);
    if (stopped) return false;
    wires.insert(wire);
    return true;
  }
  void Leave(const TransferWire* wire) {
    const std::lock_guard lock(mutex);
    wires.erase(wire);
  }
  void Fail(Status why) {
    const std::lock_guard lock(mutex);
    if (failure.ok()) failure = std::move(why);
  }
};

TransferThreads::TransferThreads(Mailbox& mailbox, store::Keeper& keeper, NodeNumber self, TransferOptions options)
    : mailbox_(mailbox),
      self_(self),
      options_(std::move(options)),
      store_(mailbox, keeper, OnNode(self, store::kCopies)) {}

TransferThreads::~TransferThreads() {
  std::vector<std::shared_ptr<Pull>> pulls;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    more_.notify_all();
    for (const std::weak_ptr<Pull>& weak : pulls_) {
      if (std::shared_ptr<Pull> pull = weak.lock()) pulls.push_back(std::move(pull));
    }
    for (const auto& [id, incoming] : incoming_) incoming->Abandon();
  }
  store_.Stop();
  for (const std::shared_ptr<Pull>& pull : pulls) Stop(*pull);
  for (const std::unique_ptr<Serving>& serving : serving_) serving->wire.Interrupt();
  for (const std::unique_ptr<Serving>& serving : serving_) serving->thread.join();
  for (std::thread& thread : threads_) thread.join();
  jobs_.clear();
  incoming_.clear();
}

// ---- threads that fetch ----

// `must`: it gets a thread of its own if no other is idle, since it may wait for another node, which may wait for us.
void TransferThreads::Run(std::function<void()> job, bool must) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  jobs_.push_back(std::move(job));
  if (idle_ >= jobs_.size()) {
    more_.notify_one();
  } else if (threads_.size() < (must ? kMaxThreads : kSpareThreads)) {
    threads_.emplace_back([this] { Work(); });
  }
}

void TransferThreads::Work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (jobs_.empty()) {
      ++idle_;
      more_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      --idle_;
      continue;
    }
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // what it holds goes before the lock comes
    lock.lock();
  }
}

std::shared_ptr<Incoming> TransferThreads::Expect(const Id& object, const Place& origin) {
  auto incoming = std::make_shared<Incoming>(store_.client(), store_.self(), object, origin, options_.part_bytes);
  const std::lock_guard lock(mutex_);
  incoming_[object] = incoming;
  return incoming;
}

void TransferThreads::Forget(const std::shared_ptr<Incoming>& incoming) {
  incoming->Abandon();
  const std::lock_guard lock(mutex_);
  const auto it = incoming_.find(incoming->object());
  if (it != incoming_.end() && it->second == incoming) incoming_.erase(it);
}

std::shared_ptr<TransferThreads::Pull> TransferThreads::Start(std::shared_ptr<Incoming> incoming, NodeNumber from,
                                                              const std::string& address, OnEnd on_end) {
  auto pull = std::make_shared<Pull>(std::move(incoming), from, address, std::move(on_end));
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(pulls_, [](const std::weak_ptr<Pull>& weak) { return weak.expired(); });
    pulls_.push_back(pull);
  }
  ++counters_.pulls;
  Run([this, pull] { Fetch(pull, true); }, true);
  return pull;
}

void TransferThreads::Stop(Pull& pull) {
  const std::lock_guard lock(pull.mutex);
  pull.stopped = true;
  for (const TransferWire* wire : pull.wires) wire->Interrupt();
}

void TransferThreads::Fetch(const std::shared_ptr<Pull>& pull, bool first) {
  if (first) {
    // Room first: an object that does not fit costs nobody anything.
    // Small ones one after the other, or each thread would borrow a segment of its own for them.
    std::unique_lock turn(small_rooms_, std::defer_lock);
    if (pull->incoming->parts() == 1) turn.lock();
    Status room = pull->incoming->Prepare();
    if (turn.owns_lock()) turn.unlock();
    if (!room.ok()) {
      {
        const std::lock_guard lock(pull->mutex);
        pull->refused = !pull->stopped;
      }
      pull->Fail(std::move(room));
      return End(pull);
    }
    const std::uint64_t bytes = pull->incoming->origin().size;
    const std::size_t streams = std::clamp<std::size_t>(bytes / options_.stream_bytes, 1, options_.streams);
    for (std::size_t i = 1; i < streams; ++i) {
      Run(
          [this, pull] {
            if (pull->Begin()) Fetch(pull, false);
          },
          false);
    }
  }
  // A kept connection may have been closed by the other end long ago: then a fresh one is tried.
  for (bool again = pull->incoming->missing() > 0; again;) {
    again = false;
    bool fresh = false;
    Result<std::unique_ptr<TransferWire>> wire = Connect(*pull, &fresh);
    if (!wire.ok()) {
      pull->Fail(wire.status());
      break;
    }
    if (!pull->Enter(wire->get())) break;
    ++counters_.streams;
    bool used = false;
    Status status = FetchOver(*pull, **wire, &used);
    pull->Leave(wire->get());
    if (status.ok()) {
      Keep(pull->from, std::move(*wire));
    } else if (!fresh && !used) {
      again = true;
    } else {
      pull->Fail(std::move(status));
    }
  }
  End(pull);
}

// Fetches parts as long as there are any. What was asked for and did not come is given back.
Status TransferThreads::FetchOver(Pull& pull, TransferWire& wire, bool* used) {
  Incoming& incoming = *pull.incoming;
  std::deque<std::size_t> asked;
  const auto fail = [&](Status why) {
    for (const std::size_t part : asked) incoming.Unclaim(part);
    return why;
  };
  for (;;) {
    std::size_t part = 0;
    while (asked.size() < kAskedFor && incoming.Claim(&part)) {
      asked.push_back(part);
      const Status sent =
          wire.Send(wire::FetchPart{incoming.object(), incoming.origin(), incoming.offset(part), incoming.bytes(part)});
      if (!sent.ok()) return fail(sent);
    }
    if (asked.empty()) return {};
    part = asked.front();
    const Result<wire::Part> answer = wire.Receive<wire::Part>();
    if (!answer.ok()) return fail(answer.status());
    *used = true;
    const Failure& failure = answer.value().failure;
    if (!failure.ok()) {
      const std::lock_guard lock(pull.mutex);
      pull.source_gone = pull.source_gone || failure.code == Code::kLost;
      return fail(Status(failure.code, failure.message));
    }
    if (answer.value().offset != incoming.offset(part) || answer.value().bytes != incoming.bytes(part)) {
      return fail(Status(Code::kCorrupt, "another part came than was asked for"));
    }
    if (Status status = wire.ReceiveBytes(incoming.Room(part)); !status.ok()) {
      if (status.code() == Code::kCorrupt) ++counters_.corrupt_parts;
      return fail(std::move(status));
    }
    counters_.bytes_in += incoming.bytes(part);
    asked.pop_front();
    incoming.Done(part);
  }
}

// The last stream to end says how it went.
void TransferThreads::End(const std::shared_ptr<Pull>& pull) {
  {
    const std::lock_guard lock(pull->mutex);
    if (--pull->active > 0) return;
    pull->ended = true;
  }
  Ended ended{Status(Code::kUnavailable, "")};
  if (pull->incoming->missing() == 0) {
    ended.place = pull->incoming->Seal();
    bool wanted = false;
    {
      const std::lock_guard lock(mutex_);
      const auto it = incoming_.find(pull->incoming->object());
      wanted = it != incoming_.end() && it->second == pull->incoming;
      if (wanted) incoming_.erase(it);
      if (wanted && ended.place.ok()) copies_[pull->incoming->object()] = *ended.place;
    }
    if (!wanted && ended.place.ok()) store_.client().Free(pull->incoming->object(), *ended.place);
  } else {
    const std::lock_guard lock(pull->mutex);
    ended.place = pull->failure.ok() ? Status(Code::kUnavailable, "the transfer was stopped") : pull->failure;
    ended.refused = pull->refused;
    ended.source_gone = pull->source_gone;
  }
  // Not kept alive by the message: what nobody waits for any more ends before this object does.
  mailbox_.Post([weak = std::weak_ptr<Pull>(pull), ended] {
    if (const std::shared_ptr<Pull> still = weak.lock()) still->on_end(ended);
  });
}

Result<std::unique_ptr<TransferWire>> TransferThreads::Connect(Pull& pull, bool* fresh) {
  *fresh = false;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<TransferWire>>& kept = kept_[pull.from];
    if (!kept.empty()) {
      std::unique_ptr<TransferWire> wire = std::move(kept.back());
      kept.pop_back();
      return wire;
    }
  }
  *fresh = true;
  ++counters_.dialled;
  wire::DialOptions options;
  options.role = wire::LinkRole::kTransfer;
  options.secrets = options_.secrets;
  options.always_tls = options_.always_tls;
  Result<wire::Link> link = wire::DialAndWait(pull.address, options);
  if (!link.ok()) return link.status();
  return std::make_unique<TransferWire>(std::move(link->stream));
}

void TransferThreads::Keep(NodeNumber node, std::unique_ptr<TransferWire> wire) {
  const std::lock_guard lock(mutex_);
  std::vector<std::unique_ptr<TransferWire>>& kept = kept_[node];
  if (!stopping_ && kept.size() < options_.kept) kept.push_back(std::move(wire));
}

// ---- copies ----

Place TransferThreads::FindCopy(const Id& object) const {
  const std::lock_guard lock(mutex_);
  const auto it = copies_.find(object);
  return it == copies_.end() ? Place{} : it->second;
}

Place TransferThreads::ForgetCopy(const Id& object) {
  const std::lock_guard lock(mutex_);
  const auto node = copies_.extract(object);
  return node.empty() ? Place{} : node.mapped();
}

// ---- threads that serve ----

void TransferThreads::Serve(wire::Link link) {
  for (auto it = serving_.begin(); it != serving_.end();) {
    if ((*it)->done) {
      (*it)->thread.join();
      it = serving_.erase(it);
    } else {
      ++it;
    }
  }
  serving_.push_back(std::make_unique<Serving>(std::move(link.stream)));
  Serving& serving = *serving_.back();
  serving.thread = std::thread([this, &serving] { ServeLoop(serving); });
}

void TransferThreads::ServeLoop(Serving& serving) {
  for (;;) {
    const Result<wire::FetchPart> request = serving.wire.Receive<wire::FetchPart>();
    if (!request.ok() || !ServePart(serving.wire, request.value()).ok()) break;
  }
  serving.wire.Interrupt();
  serving.done = true;
}

Status TransferThreads::ServePart(TransferWire& wire, const wire::FetchPart& request) {
  wire::Part answer;
  answer.offset = request.offset;
  const auto refuse = [&](Code code, std::string why) {
    answer.failure = Failure{code, std::move(why), {}, {}};
    return wire.Send(answer);
  };
  const std::uint64_t size = request.place.size;
  if (request.offset > size || request.bytes > size - request.offset || request.bytes > kMaxPart) {
    return refuse(Code::kInvalid, "a part of an object that has no such part was asked for");
  }
  Place place = request.place;
  std::shared_ptr<Incoming> incoming;
  if (place.node != self_) {
    const std::lock_guard lock(mutex_);
    if (const auto copy = copies_.find(request.object); copy != copies_.end()) {
      place = copy->second;
    } else if (const auto coming = incoming_.find(request.object); coming != incoming_.end()) {
      incoming = coming->second;
    } else {
      place = Place{};
    }
  }
  const std::string what = Cat("object ", ToString(request.object));
  answer.bytes = request.bytes;
  if (incoming != nullptr) {
    if (incoming->origin().size != size) return refuse(Code::kInvalid, Cat(what, " has another size"));
    const std::span<const std::byte> bytes = incoming->Await(request.offset, request.bytes);
    if (bytes.data() == nullptr) return refuse(Code::kLost, Cat(what, " did not arrive on node ", self_));
    if (Status status = wire.Send(answer, true); !status.ok()) return status;
    counters_.bytes_out += bytes.size();
    return wire.SendBytes(bytes);
  }
  if (place.nowhere()) return refuse(Code::kLost, Cat(what, " is not on node ", self_));
  Result<store::View> view = store_.client().Open(request.object, place);
  if (!view.ok()) return refuse(view.status().code(), view.status().message());
  Status status;
  if (view->size != size) {
    status = refuse(Code::kInvalid, Cat(what, " has another size"));
  } else {
    status = wire.Send(answer, true);
    counters_.bytes_out += request.bytes;
    if (status.ok()) status = wire.SendBytes({view->data + request.offset, request.bytes});
  }
  store_.client().Close(*view);
  return status;
}

void TransferThreads::NodeDown(NodeNumber node) {
  std::vector<std::shared_ptr<Pull>> pulls;
  std::vector<std::unique_ptr<TransferWire>> kept;
  {
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<Pull>& weak : pulls_) {
      if (std::shared_ptr<Pull> pull = weak.lock(); pull && pull->from == node) pulls.push_back(std::move(pull));
    }
    if (auto found = kept_.extract(node); !found.empty()) kept = std::move(found.mapped());
  }
  for (const std::shared_ptr<Pull>& pull : pulls) Stop(*pull);
}

}  // namespace manta::node
