#include "control/chain_host.h"

#include <sys/stat.h>

#include <charconv>
#include <filesystem>
#include <optional>

#include "base/clock.h"
#include "base/failpoint.h"
#include "control/chain_config.h"
#include "control/embedded_storage.h"

namespace manta::control {
namespace {

constexpr char kCopyPrefix[] = "copy-";
constexpr std::uint64_t kKeepLogBytes = 64U << 20;

std::string CopyFolder(const std::string& folder, std::uint64_t copy) { return Cat(folder, "/", kCopyPrefix, copy); }

}  // namespace

rules::ChainTimes RealChainTimes() {
  rules::ChainTimes times;
  times.renew_us = 10'000;
  times.lease_us = 40'000;
  times.drift_us = 4'000;
  times.silent_us = 1'000'000;
  times.resend_us = 200'000;
  times.stall_us = 2'000'000;
  times.away_us = 1'000'000;
  times.client_window = wire::kControlWindow;
  return times;
}

ChainHost::ChainHost(base::Loop& loop, ChainHostOptions options) : loop_(loop), options_(std::move(options)) {}

ChainHost::~ChainHost() {
  *alive_ = false;
  if (timer_ != 0) loop_.Cancel(timer_);
}

Result<std::unique_ptr<ChainHost>> ChainHost::Open(base::Loop& loop, ChainHostOptions options) {
  if (!options.open) {
    options.drop = [folder = options.folder](std::uint64_t copy) {
      std::error_code ignored;
      std::filesystem::remove_all(CopyFolder(folder, copy), ignored);
    };
    options.open = [&loop, folder = options.folder,
                    drop = options.drop](std::uint64_t copy) -> Result<std::unique_ptr<Storage>> {
      if (copy > 1) drop(copy - 1);  // if the process was killed before it had done so
      EmbeddedOptions embedded;
      embedded.folder = CopyFolder(folder, copy);
      embedded.keep_log_bytes = kKeepLogBytes;
      Result<std::unique_ptr<EmbeddedStorage>> opened = EmbeddedStorage::Open(loop, embedded);
      if (!opened.ok()) return opened.status();
      return std::unique_ptr<Storage>(std::move(*opened));
    };
  }
  std::unique_ptr<ChainHost> host(new ChainHost(loop, std::move(options)));
  if (Status status = host->FindCopy(); !status.ok()) return status;
  if (Status status = host->OpenCopy(); !status.ok()) return status;
  return host;
}

Status ChainHost::FindCopy() {
  if (mkdir(options_.folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return DiskError(Cat("cannot make folder ", options_.folder), errno);
  }
  const Result<std::string> chain = ReadSmallFile(options_.folder + "/chain");
  if (chain.ok()) {
    if (!FromHex(chain.value(), &chain_)) {
      return Status(Code::kCorrupt, Cat(options_.folder, "/chain does not hold the name of a chain"));
    }
  } else if (chain.status().code() != Code::kNotFound) {
    return chain.status();
  }
  // Its number is written before a copy is begun, so that a half-dropped one is never taken for it.
  const Result<std::string> copy = ReadSmallFile(options_.folder + "/copy");
  if (copy.ok()) {
    std::from_chars(copy.value().data(), copy.value().data() + copy.value().size(), copy_);
    return {};
  }
  return copy.status().code() == Code::kNotFound ? Status() : copy.status();
}

Status ChainHost::OpenCopy() {
  Result<std::unique_ptr<Storage>> opened = options_.open(copy_);
  if (!opened.ok()) return opened.status();
  storage_ = std::move(*opened);
  const Result<std::uint64_t> epoch = LastEpoch();
  if (!epoch.ok()) return epoch.status();
  last_epoch_ = epoch.value();
  return {};
}

Result<std::uint64_t> ChainHost::LastEpoch() {
  const std::uint64_t last = storage_->last_sequence();
  if (last == 0) return std::uint64_t{0};
  std::optional<Result<std::vector<Batch>>> answer;
  storage_->EntriesAfter(last - 1, 1, [&answer](Result<std::vector<Batch>> batches) { answer = std::move(batches); });
  const std::int64_t until = base::NowMicros() + 10'000'000;
  while (!answer && base::NowMicros() < until) loop_.RunOnce(10'000);
  if (!answer) return Status(Code::kTimedOut, "the storage does not answer");
  if (!answer->ok()) return std::uint64_t{0};  // the log does not reach back to it: then it is not known
  if ((*answer)->empty() || (*answer)->back().sequence != last) return std::uint64_t{0};
  return (*answer)->back().epoch;
}

// ---- links ----

Status ChainHost::Add(wire::Stream stream) {
  const std::uint64_t serial = next_serial_++;
  Incoming& incoming = incoming_[serial];
  incoming.connection = std::make_unique<wire::Connection>(
      loop_, std::move(stream), [this, serial](wire::Frame& frame) { OnFrame(serial, frame); },
      [this, serial](const Status&) {
        if (serial == front_) {
          front_ = 0;
          if (member_) member_->Forsaken();
        }
        incoming_.erase(serial);
      });
  Status status = incoming.connection->Start();
  if (!status.ok()) incoming_.erase(serial);
  return status;
}

void ChainHost::OnFrame(std::uint64_t serial, wire::Frame& frame) {
  Incoming& incoming = incoming_.at(serial);
  if (failed_) return incoming.connection->Close(Status(Code::kUnavailable, "this member's storage failed"));
  if (!incoming.greeted) {
    const Result<ChainHello> hello = frame.As<ChainHello>();
    const Status status = hello.ok() ? Greet(serial, hello.value()) : hello.status();
    if (status.ok()) return;
    incoming.connection->Send(wire::Failed{ToFailure(status)});
    return incoming.connection->CloseAfterSending(status);
  }
  if (frame.kind == ChainForget::kKind) {
    const Result<ChainForget> forget = frame.As<ChainForget>();
    if (!forget.ok()) return incoming.connection->Close(forget.status());
    storage_->Forget(forget.value().client);
    member_->Forget(forget.value().client);
    return;
  }
  const Result<ChainPacket> packet = frame.As<ChainPacket>();
  if (!packet.ok()) return incoming.connection->Close(packet.status());
  Do([&](std::int64_t now_us, rules::ChainActions* actions) {
    member_->Receive(now_us, packet.value().message, actions);
  });
}

Status ChainHost::Greet(std::uint64_t serial, const ChainHello& hello) {
  if (hello.version != kChainVersion) {
    return Status(Code::kInvalid,
                  Cat("this member speaks version ", kChainVersion, " of the chain's protocol, not ", hello.version));
  }
  if (chain_.empty()) {
    if (hello.from != rules::kNoMember) return Status(Code::kUnavailable, "this member has not met its front yet");
    if (hello.counted_on) {
      return Status(Code::kLost, Cat("the chain counts on the copy of member ", hello.to, ", but ", options_.folder,
                                     " is new: give it the folder it had"));
    }
    if (Status status = WriteSmallFile(options_.folder + "/chain", ToHex(hello.chain)); !status.ok()) return status;
    chain_ = hello.chain;
  }
  if (hello.chain != chain_) {
    return Status(Code::kInvalid, Cat("this member belongs to chain ", ToString(chain_), ", not to ",
                                      ToString(hello.chain), "; give it another --folder"));
  }
  if (hello.from != rules::kNoMember && !member_) {
    return Status(Code::kUnavailable, "this member has not met its front yet");
  }
  if (member_ && member_->id() != hello.to) {
    return Status(Code::kInvalid, Cat("this is member ", member_->id(), " of its chain, not ", hello.to,
                                      ": give the members in the same order"));
  }
  if (hello.from == rules::kNoMember && hello.opening < opening_) {
    return Status(Code::kLost,
                  Cat("a later front (", opening_, ") has taken over from this one (", hello.opening, ")"));
  }
  Incoming& incoming = incoming_.at(serial);
  incoming.greeted = true;
  if (hello.from != rules::kNoMember) {
    if (const auto link = links_.find(hello.from); link != links_.end()) link->second->Hurry();
    return {};
  }
  incoming.front = true;
  opening_ = hello.opening;
  if (const auto old = incoming_.find(std::exchange(front_, serial)); old != incoming_.end()) {
    old->second.connection->Close(Status(Code::kUnavailable, "another front has come"));
  }
  Become(hello);
  return {};
}

void ChainHost::Become(const ChainHello& hello) {
  if (!member_) {
    member_ = std::make_unique<rules::ChainMember>(hello.to, hello.incarnation, options_.times);
    member_->Restore(storage_->last_sequence(), last_epoch_);
    storage_->EachStamp([this](const Id& client, std::uint64_t client_sequence, std::uint64_t position) {
      member_->Restore(client, client_sequence, position);
    });
    timer_ = loop_.Every(options_.times.renew_us / 2, [this] {
      Do([this](std::int64_t now_us, rules::ChainActions* actions) { member_->Tick(now_us, actions); });
    });
  }
  if (hello.addresses != addresses_) {
    addresses_ = hello.addresses;
    links_.clear();
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      const auto other = static_cast<rules::MemberId>(i + 1);
      if (other == member_->id()) continue;
      ChainLink::Callbacks callbacks;
      callbacks.on_up = [this, other] {
        Do([&](std::int64_t now_us, rules::ChainActions* actions) { member_->Connected(now_us, other, actions); });
      };
      callbacks.on_down = [](const Status&) {};
      const auto greeting = [this, other] {
        ChainHello to;
        to.chain = chain_;
        to.from = member_->id();
        to.to = other;
        return to;
      };
      links_[other] = std::make_unique<ChainLink>(loop_, ConnectTo(loop_, addresses_[i], options_.secrets), greeting,
                                                  std::move(callbacks));
    }
  }
  Do([this](std::int64_t now_us, rules::ChainActions* actions) {
    member_->Speak(now_us, actions);  // the front waits for it
  });
}

// ---- what the member decides ----

void ChainHost::Do(const std::function<void(std::int64_t now_us, rules::ChainActions* actions)>& what) {
  if (failed_) return;
  rules::ChainActions actions;
  what(base::NowMicros(), &actions);
  Perform(std::move(actions));
}

void ChainHost::Perform(rules::ChainActions actions) {
  const std::shared_ptr<bool> alive = alive_;
  for (rules::ChainAction& action : actions) {
    if (auto* send = std::get_if<rules::ChainSend>(&action)) {
      // From head to tail a record goes by ChainEntries; its acknowledgement comes back by ChainAcked.
      const bool forward = std::holds_alternative<rules::ChainEntries>(send->message);
      const bool acknowledge = std::holds_alternative<rules::ChainAcked>(send->message);
      if (forward) base::Failpoint("chain.forwarding");
      if (acknowledge) base::Failpoint("chain.acknowledging");
      Send(send->to, std::move(send->message));
      if (forward) base::Failpoint("chain.forwarded");
      if (acknowledge) base::Failpoint("chain.acknowledged");
    } else if (auto* store = std::get_if<rules::ChainStore>(&action)) {
      StoreRecord(store->generation, store->record);
    } else if (std::holds_alternative<rules::ChainWipe>(action)) {
      Wipe();
    } else if (auto* fetch = std::get_if<rules::ChainFetch>(&action)) {
      Fetch(*fetch);
    } else if (auto* lookup = std::get_if<rules::ChainLookup>(&action)) {
      Lookup(*lookup);
    }
    if (!*alive || failed_) return;
  }
}

void ChainHost::Send(const rules::ChainPeer& to, rules::ChainMessage message) {
  if (to.kind == rules::ChainPeer::Kind::kMember) {
    const auto it = links_.find(to.member);
    if (it != links_.end()) it->second->Send(ChainPacket{std::move(message)});
    return;
  }
  // The front is the master, and the one client.
  const auto it = incoming_.find(front_);
  if (it != incoming_.end()) it->second.connection->Send(ChainPacket{std::move(message)});
}

void ChainHost::StoreRecord(std::uint64_t generation, const rules::ChainRecord& record) {
  Batch batch;
  batch.epoch = record.epoch;
  batch.sequence = record.position;
  batch.client = record.client;
  batch.client_sequence = record.client_sequence;
  if (!record.payload.empty()) {
    Result<std::vector<Write>> writes = FromBytes<std::vector<Write>>(record.payload);
    if (!writes.ok()) return Fail(writes.status());
    batch.writes = std::move(*writes);
  }
  const auto stored = [this, generation, epoch = record.epoch, life = life_,
                       alive = alive_](Result<std::uint64_t> result) {
    if (!*alive || life != life_) return;
    if (!result.ok()) return Fail(result.status());
    base::Failpoint("chain.stored");
    last_epoch_ = epoch;
    Do([&](std::int64_t now_us, rules::ChainActions* actions) {
      member_->Stored(now_us, generation, result.value(), actions);
    });
  };
  storage_->Apply(std::move(batch), stored);
}

void ChainHost::Wipe() {
  ++life_;
  reader_.reset();
  const std::uint64_t old = copy_++;
  storage_.reset();
  Status status = WriteSmallFile(options_.folder + "/copy", std::to_string(copy_));
  base::Failpoint("chain.wiping");
  if (status.ok()) status = OpenCopy();
  if (!status.ok()) return Fail(status);
  if (options_.drop) options_.drop(old);
}

void ChainHost::Fetch(const rules::ChainFetch& fetch) {
  // Each in a round of the loop of its own: between two of them clients are answered.
  loop_.After(0, [this, fetch, life = life_, alive = alive_] {
    if (!*alive || life != life_ || failed_) return;
    FetchLog(fetch);
  });
}

void ChainHost::FetchLog(const rules::ChainFetch& fetch) {
  const auto take = [this, fetch, life = life_, alive = alive_](Result<std::vector<Batch>> batches) {
    if (!*alive || life != life_) return;
    if (!batches.ok()) return FetchCopy(fetch);
    std::vector<rules::ChainRecord> records;
    for (Batch& batch : *batches) {
      if (records.size() == fetch.limit) break;
      records.push_back({batch.epoch, batch.sequence, batch.client, batch.client_sequence, ToBytes(batch.writes)});
    }
    Do([&](std::int64_t now_us, rules::ChainActions* actions) {
      member_->Fetched(now_us, fetch.after, true, std::move(records), actions);
    });
  };
  storage_->EntriesAfter(fetch.after, fetch.limit, take);
}

void ChainHost::FetchCopy(const rules::ChainFetch& fetch) {
  const auto tell = [this, fetch](bool found, std::vector<rules::ChainRecord> records) {
    Do([&](std::int64_t now_us, rules::ChainActions* actions) {
      member_->Fetched(now_us, fetch.after, found, std::move(records), actions);
    });
  };
  // A joiner that asks again while the copy is prepared gets that one, or a large one would never be ready.
  if (fetch.after == 0 && !(reader_ && reader_->indexing())) {
    reader_ = std::make_unique<ChainCopy>(loop_, *storage_, last_epoch_);
  }
  if (!reader_) return tell(false, {});
  reader_->Read(fetch.after, fetch.limit,
                [tell, life = life_, this, alive = alive_](Result<std::vector<rules::ChainRecord>> records) {
                  if (!*alive || life != life_) return;
                  if (!records.ok()) return tell(false, {});
                  tell(true, std::move(*records));
                });
}

void ChainHost::Lookup(const rules::ChainLookup& lookup) {
  const auto answer = [this, token = lookup.token, life = life_, alive = alive_](const ChainAnswer& what) {
    if (!*alive || life != life_) return;
    Do([&](std::int64_t now_us, rules::ChainActions* actions) {
      member_->ReadDone(now_us, token, ToBytes(what), actions);
    });
  };
  const auto failure = [](const Status& why) {
    return ChainFailure{static_cast<std::int32_t>(why.code()), why.message()};
  };
  Result<ChainRequest> request = FromBytes<ChainRequest>(lookup.what);
  if (!request.ok()) return answer(failure(request.status()));
  if (auto* get = std::get_if<ChainGetRequest>(&*request)) {
    storage_->Get(get->table, std::move(get->key), [answer, failure](Result<std::optional<Entry>> entry) {
      if (!entry.ok()) return answer(failure(entry.status()));
      answer(std::move(*entry));
    });
  } else if (auto* scan = std::get_if<ChainScanRequest>(&*request)) {
    storage_->Scan(scan->table, std::move(scan->prefix), std::move(scan->after), scan->limit,
                   [answer, failure](Result<Page> page) {
                     if (!page.ok()) return answer(failure(page.status()));
                     answer(std::move(*page));
                   });
  } else {
    ChainStamps stamps;
    stamps.last = storage_->last_sequence();
    storage_->EachStamp([&stamps](const Id& client, std::uint64_t client_sequence, std::uint64_t position) {
      stamps.stamps.push_back({client, client_sequence, position});
    });
    answer(std::move(stamps));
  }
}

void ChainHost::Fail(const Status& why) {
  if (failed_) return;
  failed_ = true;
  // From the loop: whoever called is in the middle of something. The closed links tell the others.
  loop_.After(0, [this, why, alive = alive_] {
    if (!*alive) return;
    incoming_.clear();
    links_.clear();
    front_ = 0;
    if (on_failure_) on_failure_(why);
  });
}

}  // namespace manta::control
