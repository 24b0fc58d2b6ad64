// Programs brings a job's executable to the nodes that run it: once per content (SHA-256), checked, and kept in memory
// (memfd) for the life of the daemon. The home node, where the driver is, gives it out in parts.
//
// Nodes of one machine share the file itself, if the path still names the very file that the driver runs: then nothing
// is hashed or copied.
//
// Threads: the loop's; files are hashed in a thread of their own, which brings its result by an eventfd.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "node/nodes.h"
#include "types/id.h"
#include "wire/cluster_messages.h"

namespace manta::node {

class Programs {
 public:
  static constexpr std::uint32_t kPartBytes = 1U << 20;
  static constexpr std::size_t kPartsAhead = 4;
  static constexpr std::uint64_t kMaxBytes = 8ULL << 30;
  static constexpr std::uint64_t kCacheBytes = 1ULL << 30;  // programs that no job uses go beyond this

  using OnFacts = std::function<void(Result<wire::JobFacts>)>;
  using OnProgram = std::function<void(Result<base::Fd> executable)>;

  Programs(base::Loop& loop, NodeLinks& links);
  ~Programs();
  Programs(const Programs&) = delete;
  Programs& operator=(const Programs&) = delete;

  // ---- at home ----

  // A job of this node. `executable` as in Program.
  void AddJob(const wire::JobFacts& facts, int executable);
  void RemoveJob(const Id& job);
  // What another node needs to know to run it. `same_machine`: that node can open the path.
  void Describe(const Id& job, bool same_machine, OnFacts done);
  // Of a job of this node; not valid if there is none.
  [[nodiscard]] base::Fd Executable(const Id& job) const;

  // ---- elsewhere ----

  // kNotFound: the path does not name the file any more (ask for the hash).
  void Get(const wire::JobFacts& facts, OnProgram done);

 private:
  struct Local {
    wire::JobFacts facts;
    base::Fd executable;
    std::string file;  // FileName of it
    std::vector<OnFacts> waiting;
    bool hashing = false;
  };
  struct Fetch {
    NodeNumber home = 0;
    std::uint64_t bytes = 0;
    std::uint64_t asked = 0;
    std::uint64_t got = 0;
    base::Fd memory;
    std::vector<OnProgram> waiting;
  };
  struct Hashed {
    std::function<void(Result<std::string>)> done;
    Result<std::string> digest;
  };
  struct Cached {
    base::Fd file;
    std::uint64_t bytes = 0;
    std::uint64_t used = 0;  // order of use
  };

  void HashInThread(base::Fd file, std::function<void(Result<std::string>)> done);
  void OnHashed();
  void Serve(NodeNumber from, const wire::FetchProgram& message, std::uint64_t call);
  void AskMore(const std::string& sha256);
  void OnPart(const std::string& sha256, const Result<wire::ProgramPart>& part);
  void Check(const std::string& sha256);
  void Finish(const std::string& sha256, const Status& status);
  void Trim();

  base::Loop& loop_;
  NodeLinks& links_;
  std::unordered_map<Id, std::unique_ptr<Local>> locals_;
  std::map<std::string, std::string> hashes_;  // FileName to digest
  std::map<std::string, Fetch> fetches_;
  std::map<std::string, Cached> cache_;
  std::uint64_t uses_ = 0;
  base::Fd event_;
  std::mutex mutex_;  // guards hashed_
  std::vector<Hashed> hashed_;
  std::vector<std::thread> threads_;
};

// "8:1 4711 …": device, inode, size and times. Empty if there is no such file.
[[nodiscard]] std::string FileName(int fd);

}  // namespace manta::node
