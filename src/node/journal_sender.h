// Sends an actor's journal (shm/journal.h) to another node. A journal holds the actor's whole state, which may be
// gigabytes: it goes in pieces of kPieceBytes, of which at most kPieces are under way, so that neither end's loop is
// busy with it for longer than a piece takes, and heartbeats pass in between.
//
// Why not all at once: encoding hundreds of megabytes blocks the loop for so long that the node fences itself, and what
// the other end has not read is more than a connection may hold (wire::Connection::kMaxOutgoing).
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/fd.h"
#include "node/nodes.h"
#include "wire/journal_messages.h"

namespace manta::node {

inline constexpr std::uint64_t kPieceBytes = 1ULL << 20;
inline constexpr std::uint64_t kPieces = 4;

struct JournalOrder {
  NodeNumber to = 0;
  Id actor;
  std::uint32_t epoch = 0;
  wire::JournalUse use = wire::JournalUse::kCopy;
};

// Sends `ranges` of the journal in that file. The ranges must not change before `done` is called: when the other end
// has all of them, has refused one, or its connection has ended. The sender maps the file, so the caller may close it.
// `done` may be called at once.
void SendJournal(NodeLinks& links, const JournalOrder& order, const base::Fd& journal, std::vector<JournalRange> ranges,
                 std::function<void(const Status&)> done);

// All there is in it, which nobody writes. A small one goes at once, in one message without an answer.
void SendWholeJournal(NodeLinks& links, const JournalOrder& order, const base::Fd& journal,
                      std::function<void(const Status&)> done);

}  // namespace manta::node
