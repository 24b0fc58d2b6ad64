#include "node/head_tool.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>

#include "base/clock.h"
#include "wire/dial.h"

namespace manta::node {
namespace {

std::string Amount(std::int64_t units) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(units) / kUnit);
  return text;
}

const char* NameOf(wire::NodeFacts::State state) {
  constexpr std::array kNames = {"alive", "suspect", "draining", "left", "dead"};
  const auto index = static_cast<std::size_t>(state);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string Pad(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
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

}  // namespace

Result<std::unique_ptr<HeadTool>> HeadTool::Connect(const std::string& address, std::shared_ptr<wire::Secrets> secrets,
                                                    std::int64_t timeout_us) {
  wire::DialOptions options;
  options.role = wire::LinkRole::kTool;
  options.secrets = std::move(secrets);
  options.timeout_us = timeout_us;
  Result<wire::Link> link = wire::DialAndWait(address, options);
  if (!link.ok()) return link.status();
  return std::unique_ptr<HeadTool>(new HeadTool(std::move(*link)));
}

template <typename M>
Result<wire::Frame> HeadTool::Ask(const M& message, std::int64_t timeout_us) {
  const std::int64_t deadline = base::NowMicros() + timeout_us;
  const std::uint64_t call = next_call_++;
  const std::string bytes = wire::EncodeFrame(message, call);
  if (Status status = link_.stream.WriteAll(std::as_bytes(std::span(bytes)), timeout_us); !status.ok()) return status;
  for (;;) {
    wire::Frame frame;
    const Result<bool> next = reader_.Next(&frame);
    if (!next.ok()) return next.status();
    if (next.value()) {
      if (frame.call != call) continue;
      if (frame.kind != wire::Kind::kFailed) return frame;
      const Result<wire::Failed> failed = frame.As<wire::Failed>();
      if (!failed.ok()) return failed.status();
      return Status(failed.value().failure.code, failed.value().failure.message);
    }
    std::array<std::byte, 16384> buffer{};
    const std::int64_t left = std::max<std::int64_t>(deadline - base::NowMicros(), 0);
    const Result<std::size_t> count = link_.stream.ReadSome(buffer, left);
    if (!count.ok()) return count.status();
    if (count.value() == 0) return Status(Code::kUnavailable, "the head closed the connection");
    reader_.Add(std::span(buffer).first(count.value()), {});
  }
}

Result<wire::ClusterView> HeadTool::View(bool all, std::int64_t timeout_us) {
  const Result<wire::Frame> frame = Ask(wire::NodesRequest{all}, timeout_us);
  if (!frame.ok()) return frame.status();
  return frame.value().As<wire::ClusterView>();
}

Result<std::vector<wire::NodeFacts>> HeadTool::Nodes(bool all, std::int64_t timeout_us) {
  Result<wire::ClusterView> view = View(all, timeout_us);
  if (!view.ok()) return view.status();
  return std::move(view->nodes);
}

Status HeadTool::Drain(const std::string& node, std::int64_t timeout_us) {
  Status status = Ask(wire::Drain{node}, timeout_us).status();
  if (status.code() != Code::kTimedOut) return status;
  return {
      Code::kTimedOut,
      Cat("node ", node, " has not left within ", timeout_us / 1000, " ms. It takes nothing new, and leaves by itself ",
          "when the drivers, tasks and actors that cannot go elsewhere have ended; `manta status` shows what it runs, ",
          "`manta drain ", node, " --timeout SECONDS` waits longer")};
}

Status HeadTool::Stop(std::int64_t timeout_us) { return Ask(wire::StopCluster{}, timeout_us).status(); }

std::string NodesTable(const std::vector<wire::NodeFacts>& nodes) {
  std::ostringstream out;
  out << Pad("NUMBER", 8) << Pad("NAME", 16) << Pad("STATE", 10) << Pad("ADDRESS", 24) << Pad("PID", 9)
      << "RESOURCES FREE\n";
  for (const wire::NodeFacts& node : nodes) {
    out << Pad(std::to_string(node.number), 8) << Pad(node.name, 16) << Pad(NameOf(node.state), 10)
        << Pad(node.address, 24) << Pad(std::to_string(node.pid), 9);
    bool first = true;
    for (const auto& [name, total] : node.total.amounts()) {
      out << (first ? "" : ", ") << name << " " << Amount(node.available.Get(name)) << " of " << Amount(total);
      first = false;
    }
    for (const auto& [key, value] : node.labels) out << "  " << key << "=" << value;
    if (!node.why.empty()) out << "  (" << node.why << ")";
    out << "\n";
  }
  return out.str();
}

std::string ViewNotes(const wire::ClusterView& view) {
  std::string text;
  for (const wire::SchedulerFacts& one : view.schedulers) {
    text += Cat("scheduler ", one.replica, "  ", one.address, "  pid ", one.pid, "\n");
  }
  if (!view.job_quota.empty()) text += Cat("a job may have ", ToString(view.job_quota), " at a time\n");
  return text;
}

std::string NodesJson(const std::vector<wire::NodeFacts>& nodes) {
  std::ostringstream out;
  const auto resources = [&](const Resources& amounts) {
    out << "{";
    bool first = true;
    for (const auto& [name, amount] : amounts.amounts()) {
      out << (first ? "" : ", ") << Quoted(name) << ": " << Amount(amount);
      first = false;
    }
    out << "}";
  };
  out << "[";
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const wire::NodeFacts& node = nodes[i];
    out << (i == 0 ? "\n" : ",\n") << "  {\"number\": " << node.number << ", \"name\": " << Quoted(node.name)
        << ", \"state\": " << Quoted(NameOf(node.state)) << ", \"address\": " << Quoted(node.address)
        << ", \"local\": " << Quoted(node.local) << ", \"pid\": " << node.pid << ", \"resources_total\": ";
    resources(node.total);
    out << ", \"resources_free\": ";
    resources(node.available);
    out << ", \"labels\": {";
    bool first = true;
    for (const auto& [key, value] : node.labels) {
      out << (first ? "" : ", ") << Quoted(key) << ": " << Quoted(value);
      first = false;
    }
    out << "}, \"why\": " << Quoted(node.why) << "}";
  }
  out << "\n]\n";
  return out.str();
}

}  // namespace manta::node
