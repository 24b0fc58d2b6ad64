// EtcdClient asks an etcd cluster over its HTTP gateway (v3, of etcd 3.4 and later): transactions and leases, no more
// than a chain's configuration needs (control/etcd_keeper.h).
//
// A question goes to the server that answered last, and to the others in turn if that one is silent. A transaction that
// was not answered may have been made all the same: who asks must find out.
//
// Threads: one loop's; callbacks come from it, none after destruction.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/loop.h"
#include "control/http_call.h"
#include "control/json.h"

namespace manta::control {

class EtcdClient {
 public:
  using OnAnswer = std::function<void(Result<Json> answer)>;
  static constexpr std::int64_t kTimeoutUs = 1'000'000;  // of one server

  // "host:port", with or without http:// before. Names are looked up here, which may block. kInvalid: one is none.
  static Result<std::unique_ptr<EtcdClient>> Create(base::Loop& loop, const std::vector<std::string>& servers);

  // `what` is the name of the operation: "kv/txn", "lease/grant" … kUnavailable: no server answers; kIo: one refuses.
  void Ask(const std::string& what, const std::string& body, OnAnswer done);
  // The same, and waits for it on the loop.
  Result<Json> AskAndWait(const std::string& what, const std::string& body);

 private:
  struct Server {
    std::string name;
    wire::SocketAddress address;
  };
  explicit EtcdClient(base::Loop& loop) : loop_(loop) {}
  void Try(std::uint64_t number, const std::string& what, const std::string& body, std::size_t tried, OnAnswer done);

  base::Loop& loop_;
  std::vector<Server> servers_;
  std::size_t best_ = 0;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, std::unique_ptr<HttpCall>> calls_;
};

// As keys and values are written in the gateway's JSON.
[[nodiscard]] std::string ToBase64(std::string_view bytes);
[[nodiscard]] Result<std::string> FromBase64(std::string_view text);

}  // namespace manta::control
