#include "wire/local_connect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "wire/control_client.h"
#include "wire/stream.h"

namespace manta::wire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kOther = 65534;

// Listens at an abstract name as `user`, as the kernel sees it.
class LocalServer {
 public:
  explicit LocalServer(uid_t user) {
    static int serial = 0;
    address_ = Cat("@manta-peer-test-", getpid(), "-", ++serial);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, address_.data() + 1, address_.size() - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
    const uid_t self = geteuid();
    EXPECT_EQ(seteuid(user), 0);
    socket_.Reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name), length), 0);
    EXPECT_EQ(listen(socket_.get(), 8), 0);
    EXPECT_EQ(seteuid(self), 0);
  }
  [[nodiscard]] const std::string& address() const { return address_; }
  // All bytes that the next connection brings until its end.
  [[nodiscard]] std::string Received() const {
    const base::Fd peer(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(peer.valid());
    char bytes[64];
    const ssize_t count = recv(peer.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    return count > 0 ? std::string(bytes, static_cast<std::size_t>(count)) : std::string();
  }

 private:
  std::string address_;
  base::Fd socket_;
};

TEST(LocalConnect, ReachesASocketOfTheSameUser) {
  const LocalServer server(geteuid());
  EXPECT_TRUE(ConnectToLocal(server.address()).ok());
}

TEST(LocalConnect, RefusesASocketOfAnotherUserByNameAndSendsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const LocalServer server(kOther);
  const Result<base::Fd> socket = ConnectToLocal(server.address());
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.status().code(), Code::kInvalid);
  EXPECT_THAT(socket.status().message(), AllOf(HasSubstr(server.address()), HasSubstr("nobody (65534)"),
                                               HasSubstr(Cat("pid ", getpid())), HasSubstr("root (0)")));
  EXPECT_EQ(server.Received(), "");
}

TEST(LocalConnect, AClientOfTheControlStoreRefusesAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const LocalServer server(kOther);
  Status said;
  ConnectLocally(server.address())([&](Result<Stream> stream) { said = stream.status(); });
  EXPECT_THAT(said.message(), HasSubstr("nobody (65534)"));
  EXPECT_EQ(server.Received(), "");
}

TEST(LocalConnect, NamesTheErrorWhereNothingListens) {
  EXPECT_EQ(ConnectToLocal("@manta-peer-test-none").status().code(), Code::kUnavailable);
  EXPECT_EQ(ConnectToLocal("manta").status().code(), Code::kInvalid);
  EXPECT_EQ(ConnectToLocal("@" + std::string(200, 'x')).status().code(), Code::kInvalid);
}

TEST(LocalConnect, KnowsTheUserWhoMadeASocketPair) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  int pair[2];
  ASSERT_EQ(seteuid(kOther), 0);
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  ASSERT_EQ(seteuid(0), 0);
  const base::Fd one(pair[0]);
  const base::Fd two(pair[1]);
  EXPECT_THAT(CheckPeerUser(one.get(), "a pair").message(), HasSubstr("a pair is served by user nobody (65534)"));
}

}  // namespace
}  // namespace manta::wire
