#include "node/status.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "base/clock.h"
#include "base/fd.h"
#include "wire/frame.h"
#include "wire/local_connect.h"

namespace manta::node {
namespace {

constexpr std::int64_t kPatienceUs = 2'000'000;

Status SendFrame(int socket, const std::string& bytes) {
  return wire::SendAll(socket, std::as_bytes(std::span(bytes)), {});
}

Result<wire::Frame> NextAnswer(int socket, wire::FrameReader* reader, std::int64_t deadline_us) {
  for (;;) {
    wire::Frame frame;
    const Result<bool> next = reader->Next(&frame);
    if (!next.ok()) return next.status();
    if (next.value()) return frame;
    std::array<std::byte, 4096> buffer{};
    std::vector<base::Fd> fds;
    std::size_t count = 0;
    bool would_block = false;
    const Status status = wire::Receive(socket, buffer, &count, &fds, &would_block);
    if (!status.ok()) return status;
    if (would_block || base::NowMicros() > deadline_us)
      return Status(Code::kTimedOut, "the daemon did not answer within 2 s");
    if (count == 0) return Status(Code::kUnavailable, "the daemon closed the connection");
    reader->Add(std::span(buffer).first(count), std::move(fds));
  }
}

template <typename M>
Result<M> Expect(const Result<wire::Frame>& answer) {
  if (!answer.ok()) return answer.status();
  if (answer.value().kind == wire::Kind::kFailed) {
    const Result<wire::Failed> failed = answer.value().As<wire::Failed>();
    return failed.ok() ? Status(failed.value().failure.code, failed.value().failure.message) : failed.status();
  }
  return answer.value().As<M>();
}

std::string Amount(std::int64_t units) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(units) / kUnit);
  return text;
}

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string JsonResources(const Resources& resources) {
  std::string out = "{";
  for (const auto& [name, amount] : resources.amounts()) {
    if (out.size() > 1) out += ", ";
    out += Quoted(name) + ": " + Amount(amount);
  }
  return out + "}";
}

template <typename Reply, typename Request>
Result<Reply> Ask(const std::string& address, const Request& request) {
  Result<base::Fd> connected = wire::ConnectToLocal(address);
  if (!connected.ok()) {
    const bool none = connected.status().code() == Code::kUnavailable;
    return Status(connected.status().code(),
                  Cat(none ? Cat("no node listens at ", address, ": ") : "", connected.status().message()));
  }
  const base::Fd& socket = *connected;
  timeval patience{kPatienceUs / 1000000, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const std::int64_t deadline = base::NowMicros() + kPatienceUs;
  wire::Hello hello;
  hello.role = wire::Role::kTool;
  hello.pid = static_cast<std::uint32_t>(getpid());
  wire::FrameReader reader;
  if (Status status = SendFrame(socket.get(), wire::EncodeFrame(hello, 1)); !status.ok()) return status;
  if (Result<wire::Welcome> welcome = Expect<wire::Welcome>(NextAnswer(socket.get(), &reader, deadline));
      !welcome.ok()) {
    return welcome.status();
  }
  if (Status status = SendFrame(socket.get(), wire::EncodeFrame(request, 2)); !status.ok()) return status;
  return Expect<Reply>(NextAnswer(socket.get(), &reader, deadline));
}

}  // namespace

std::vector<std::string> FindClusters() {
  const std::string prefix = Cat("@manta-", getuid(), "-");
  std::set<std::string> found;
  std::ifstream file("/proc/net/unix");
  for (std::string line; std::getline(file, line);) {
    // Num RefCount Protocol Flags Type St Inode Path; flag 10000 says that it listens.
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> path;
    if (flags == "00010000" && path.rfind(prefix, 0) == 0) found.insert(path);
  }
  return {found.begin(), found.end()};
}

Result<wire::StatusReply> AskStatus(const std::string& address) {
  return Ask<wire::StatusReply>(address, wire::StatusRequest{});
}

Result<wire::MemoryReply> AskMemory(const std::string& address) {
  return Ask<wire::MemoryReply>(address, wire::MemoryRequest{});
}

std::string MemoryTable(const wire::MemoryReply& reply) {
  std::ostringstream out;
  out << "node " << reply.node << "  " << Bytes(reply.store_used) << " of " << Bytes(reply.store_bytes) << " in "
      << reply.objects.size() << " objects\n";
  if (reply.objects.empty()) return out.str();
  std::vector<const wire::MemoryReply::Object*> objects;
  objects.reserve(reply.objects.size());
  for (const wire::MemoryReply::Object& object : reply.objects) objects.push_back(&object);
  std::sort(objects.begin(), objects.end(), [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  char line[256];
  std::snprintf(line, sizeof line, "  %-32s %10s  %-9s %-10s %7s  %s\n", "object", "size", "where", "owner", "holders",
                "read by");
  out << line;
  for (const wire::MemoryReply::Object* object : objects) {
    const char* where = object->copy ? "copy" : object->spilled ? "disk" : "memory";
    const std::string owner = object->copy             ? "elsewhere"
                              : object->owner_pid == 0 ? "gone"
                                                       : Cat("pid ", object->owner_pid);
    std::string readers;
    for (const std::uint32_t pid : object->readers) readers += Cat(readers.empty() ? "pid " : ", ", pid);
    std::snprintf(line, sizeof line, "  %-32s %10s  %-9s %-10s %7u  ", ToHex(object->id).c_str(),
                  Bytes(object->bytes).c_str(), where, owner.c_str(), object->holders);
    out << line << readers << "\n";
  }
  return out.str();
}

std::string StatusTable(const std::vector<NodeStatus>& nodes) {
  std::ostringstream out;
  // The nodes of one cluster stand together, under its head's address.
  std::vector<const NodeStatus*> sorted;
  sorted.reserve(nodes.size());
  for (const NodeStatus& node : nodes) sorted.push_back(&node);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const NodeStatus* a, const NodeStatus* b) { return a->reply.head < b->reply.head; });
  const std::string* head = nullptr;
  for (const NodeStatus* one : sorted) {
    const NodeStatus& node = *one;
    const wire::StatusReply& reply = node.reply;
    if (head == nullptr || *head != reply.head || reply.head.empty()) {
      out << (reply.head.empty() ? "private cluster" : Cat("cluster ", reply.head)) << "\n";
    }
    head = &reply.head;
    char uptime[32];
    std::snprintf(uptime, sizeof uptime, "%.1f s", reply.uptime_seconds);
    out << "node " << reply.node << "  " << node.address << "  pid " << reply.pid << "  up " << uptime << "\n";
    out << "  resources   ";
    bool first = true;
    for (const auto& [name, total] : reply.total.amounts()) {
      if (name.starts_with("node:")) continue;  // names of the node itself
      out << (first ? "" : ", ") << name << " " << Amount(reply.in_use.Get(name)) << " of " << Amount(total)
          << " in use";
      first = false;
    }
    out << (first ? "none" : "") << "\n";
    out << "  processes   " << reply.drivers << " drivers, " << reply.workers << " workers (" << reply.workers_busy
        << " busy), " << reply.actors << " actors\n";
    out << "  tasks       " << reply.tasks_queued << " queued, " << reply.tasks_running << " running, "
        << reply.tasks_finished << " finished\n";
    for (const wire::StatusReply::Job& job : reply.jobs) {
      if (job.quota.empty()) continue;
      out << "  job         " << ToString(job.job) << " (" << job.program << ")  quota";
      const char* comma = " ";
      for (const auto& [name, quota] : job.quota.amounts()) {
        out << comma << name << " " << Amount(job.in_use.Get(name)) << " of " << Amount(quota) << " in use";
        comma = ", ";
      }
      out << "\n";
    }
    out << "  store       " << Bytes(reply.store_used) << " of " << Bytes(reply.store_bytes) << " in "
        << reply.store_objects << " objects, " << Bytes(reply.store_spilled) << " spilled\n";
  }
  return out.str();
}

std::string StatusJson(const std::vector<NodeStatus>& nodes) {
  std::ostringstream out;
  out << "[";
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const wire::StatusReply& reply = nodes[i].reply;
    out << (i == 0 ? "\n" : ",\n");
    out << "  {\"node\": " << Quoted(reply.node) << ", \"cluster\": " << Quoted(reply.head)
        << ", \"address\": " << Quoted(nodes[i].address) << ", \"pid\": " << reply.pid
        << ", \"uptime_seconds\": " << reply.uptime_seconds << ", \"resources_total\": " << JsonResources(reply.total)
        << ", \"resources_in_use\": " << JsonResources(reply.in_use) << ", \"drivers\": " << reply.drivers
        << ", \"workers\": " << reply.workers << ", \"workers_busy\": " << reply.workers_busy
        << ", \"actors\": " << reply.actors << ", \"tasks_queued\": " << reply.tasks_queued
        << ", \"tasks_running\": " << reply.tasks_running << ", \"tasks_finished\": " << reply.tasks_finished
        << ", \"store_bytes\": " << reply.store_bytes << ", \"store_used\": " << reply.store_used
        << ", \"store_objects\": " << reply.store_objects << ", \"store_spilled\": " << reply.store_spilled
        << ", \"bytes_sent\": " << reply.bytes_sent << ", \"bytes_fetched\": " << reply.bytes_fetched
        << ", \"lease_requests\": " << reply.lease_requests << ", \"lease_questions\": " << reply.lease_questions
        << ", \"calls_replayed\": " << reply.calls_replayed << ", \"jobs\": [";
    for (std::size_t j = 0; j < reply.jobs.size(); ++j) {
      const wire::StatusReply::Job& job = reply.jobs[j];
      out << (j == 0 ? "" : ", ") << "{\"job\": " << Quoted(ToHex(job.job)) << ", \"program\": " << Quoted(job.program)
          << ", \"quota\": " << JsonResources(job.quota) << ", \"quota_in_use\": " << JsonResources(job.in_use) << "}";
    }
    out << "]}";
  }
  out << "\n]\n";
  return out.str();
}

}  // namespace manta::node
