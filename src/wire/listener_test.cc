// Listener and Dial over plain TCP: what is refused, and how much strangers can do.
#include "wire/listener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <thread>

#include "wire/link_fixture.h"
#include "wire/peer_user.h"

namespace manta::wire {
namespace {

using testing::HasSubstr;

// A stranger's socket: connects and says what it likes.
class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    const SocketAddress target = Resolve(ParseAddress(address).value()).value().front();
    fd_ = base::Fd(socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    connected_ = connect(fd_.get(), target.get(), target.size) == 0;
    fcntl(fd_.get(), F_SETFL, O_NONBLOCK);
  }
  [[nodiscard]] bool connected() const { return connected_; }
  void Say(std::string_view text) const { (void)!send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL); }
  // Reads what is there; sets closed().
  std::string Hear() {
    std::string all;
    std::array<char, 4096> buffer;
    for (;;) {
      const ssize_t got = recv(fd_.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) {
        closed_ = got == 0 || errno == ECONNRESET;
        return all;
      }
      all.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  [[nodiscard]] bool closed() const { return closed_; }

 private:
  base::Fd fd_;
  bool connected_ = false;
  bool closed_ = false;
};

std::string Echo(Link& from, Link& to, const std::string& text) {
  EXPECT_TRUE(from.stream.WriteAll(BytesOf(text), 1'000'000).ok());
  std::string back(text.size(), '\0');
  EXPECT_TRUE(to.stream.ReadAll(std::as_writable_bytes(std::span(back)), 1'000'000).ok());
  return back;
}

using ListenerTest = LinkFixture;

TEST_F(ListenerTest, MembersGetALinkThatCarriesTheirBytes) {
  const bool loaded = TlsLoaded();  // by another test
  Listen();
  Link dialled;
  Link accepted;
  Connect(Options(LinkRole::kTransfer), &dialled, &accepted);
  EXPECT_EQ(accepted.role, LinkRole::kTransfer);
  EXPECT_EQ(accepted.version, 1);
  EXPECT_EQ(dialled.cluster, secrets_->keys().cluster);
  EXPECT_EQ(Echo(dialled, accepted, "there"), "there");
  EXPECT_EQ(Echo(accepted, dialled, "and back"), "and back");
  EXPECT_FALSE(dialled.stream.encrypted());
  EXPECT_GE(dialled.stream.raw_fd(), 0);
  EXPECT_EQ(counters().accepted, 1U);
  EXPECT_EQ(listener_->pending(), 0U);
  EXPECT_EQ(TlsLoaded(), loaded) << "plain connections must not load OpenSSL";
}

TEST_F(ListenerTest, WhatFollowsTheHandshakeAtOnceIsNotLost) {
  Listen();
  Result<Link> link = DialOne(Options());
  ASSERT_TRUE(link.ok());
  ASSERT_TRUE(link->stream.WriteAll(BytesOf("first words"), 0).ok());
  RunUntil([&] { return !links_.empty(); });
  std::string heard(11, '\0');
  ASSERT_TRUE(links_[0].stream.ReadAll(std::as_writable_bytes(std::span(heard)), 1'000'000).ok());
  EXPECT_EQ(heard, "first words");
}

TEST_F(ListenerTest, SocketsAreSetForSmallFramesAndVanishedPeers) {
  Listen();
  Link dialled;
  Link accepted;
  Connect(Options(), &dialled, &accepted);
  for (const Link* const link : {&dialled, &accepted}) {
    for (const auto& [level, option] : {std::pair(int{IPPROTO_TCP}, TCP_NODELAY), std::pair(SOL_SOCKET, SO_KEEPALIVE),
                                        std::pair(int{IPPROTO_TCP}, TCP_USER_TIMEOUT)}) {
      int value = 0;
      socklen_t size = sizeof value;
      ASSERT_EQ(getsockopt(link->stream.fd(), level, option, &value, &size), 0);
      EXPECT_NE(value, 0) << level << " " << option;
    }
  }
}

TEST_F(ListenerTest, BindsLoopbackUnlessToldOtherwise) {
  Listen();
  EXPECT_THAT(listener_->address(), testing::StartsWith("127.0.0.1:"));
}

TEST_F(ListenerTest, BindingWiderWithoutTlsIsRefusedWithTheRemedy) {
  for (const char* const address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:0.0.0.0]:0"}) {
    ListenOptions options;
    options.address = address;
    options.secrets = secrets_;
    const auto made = Listener::Create(*loop_, options, [](Link) {});
    ASSERT_FALSE(made.ok()) << address;
    EXPECT_EQ(made.status().code(), Code::kInvalid);
    EXPECT_THAT(made.status().message(), HasSubstr("--tls"));
    EXPECT_THAT(made.status().message(), HasSubstr(address));
  }
}

TEST_F(ListenerTest, ListensOnIpv6Loopback) {
  const base::Fd probe(socket(AF_INET6, SOCK_STREAM, 0));
  const SocketAddress six = Resolve(Address{"::1", 0}).value().front();
  if (!probe.valid() || bind(probe.get(), six.get(), six.size) != 0) GTEST_SKIP() << "no IPv6 here";
  ListenOptions options;
  options.address = "[::1]:0";
  Listen(options);
  EXPECT_THAT(listener_->address(), testing::StartsWith("[::1]:"));
  EXPECT_TRUE(DialOne(Options()).ok());
}

// While a head is down the kernel may give its port to any connection that begins.
TEST_F(ListenerTest, AHeadThatIsStartedAgainGetsItsPortBackAlsoFromADialledConnection) {
  Listen();
  Result<Link> link = DialOne(Options());
  ASSERT_TRUE(link.ok());
  ListenOptions options;
  options.address = LocalOf(link->stream.fd()).text();
  options.secrets = secrets_;
  const auto made = Listener::Create(*loop_, options, [](Link) {});
  EXPECT_TRUE(made.ok()) << made.status().message();
}

TEST_F(ListenerTest, ATakenPortIsAnErrorThatNamesIt) {
  Listen();
  ListenOptions options;
  options.address = listener_->address();
  options.secrets = secrets_;
  const auto second = Listener::Create(*loop_, options, [](Link) {});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr(listener_->address()));
}

TEST_F(ListenerTest, AWrongTokenIsRefusedAndCounted) {
  Listen();
  Keys keys = secrets_->keys();
  keys.token[5] ^= std::byte{1};
  DialOptions options = Options();
  options.secrets = Secrets::FromKeys(keys);
  const Result<Link> link = DialOne(options);
  ASSERT_FALSE(link.ok());
  EXPECT_THAT(link.status().message(), HasSubstr("wrong token"));
  EXPECT_THAT(link.status().message(), HasSubstr(listener_->address()));
  EXPECT_EQ(counters().wrong_token, 1U);
  EXPECT_EQ(counters().accepted, 0U);
  for (const std::string& note : notes_) EXPECT_EQ(note.find(ToHexText(keys.token)), std::string::npos);
}

TEST_F(ListenerTest, AnotherClusterIsRefusedAndCounted) {
  Listen();
  DialOptions options = Options();
  options.secrets = NewSecrets("other");
  EXPECT_THAT(DialOne(options).status().message(), HasSubstr("wrong cluster"));
  EXPECT_EQ(counters().wrong_cluster, 1U);
}

TEST_F(ListenerTest, AnotherVersionIsRefusedWithBothNamedAndCounted) {
  Listen();
  DialOptions options = Options();
  options.versions = {7, 9};
  EXPECT_THAT(DialOne(options).status().message(), HasSubstr("protocol version 1, this program 7 to 9"));
  EXPECT_EQ(counters().wrong_version, 1U);
}

TEST_F(ListenerTest, ARoleThatIsNotServedHereIsRefusedAndCounted) {
  ListenOptions options;
  options.roles = RoleBit(LinkRole::kTransfer) | RoleBit(LinkRole::kNode);
  Listen(options);
  EXPECT_THAT(DialOne(Options(LinkRole::kTool)).status().message(), HasSubstr("`tool`"));
  // A join is not served unless asked for, whatever the mask says.
  EXPECT_FALSE(DialOne(Options(LinkRole::kJoin)).ok());
  EXPECT_TRUE(DialOne(Options(LinkRole::kNode)).ok());
  EXPECT_EQ(counters().wrong_role, 2U);
}

TEST_F(ListenerTest, ARotatedTokenStaysGoodForTheGraceOnly) {
  Listen();
  const Keys old = secrets_->keys();
  DialOptions with_old = Options();
  with_old.secrets = Secrets::FromKeys(old);
  ASSERT_TRUE(DialOne(with_old).ok());
  ASSERT_TRUE(secrets_->RotateToken(600).ok());
  EXPECT_TRUE(DialOne(with_old).ok()) << "within the grace";
  EXPECT_TRUE(DialOne(Options()).ok()) << "with the new one";
  ASSERT_TRUE(secrets_->RotateToken(0).ok());
  EXPECT_THAT(DialOne(with_old).status().message(), HasSubstr("wrong token"));
  EXPECT_TRUE(DialOne(Options()).ok());
}

TEST_F(ListenerTest, AGraceThatIsOverIsOver) {
  Keys keys = secrets_->keys();
  keys.has_previous = true;
  keys.previous = RandomBytes<32>();
  keys.previous_until = UnixNow() - 1;
  ListenOptions options;
  options.secrets = Secrets::FromKeys(keys);
  Listen(options);
  Keys old = keys;
  old.has_previous = false;
  old.token = keys.previous;
  DialOptions dial = Options();
  dial.secrets = Secrets::FromKeys(old);
  EXPECT_THAT(DialOne(dial).status().message(), HasSubstr("wrong token"));
}

TEST_F(ListenerTest, WhoKnowsTheNewTokenReachesWhoOnlyKnowsTheOldOne) {
  ListenOptions options;
  options.secrets = Secrets::FromKeys(secrets_->keys());
  Listen(options);
  ASSERT_TRUE(secrets_->RotateToken(600).ok());
  EXPECT_TRUE(DialOne(Options()).ok());
  EXPECT_TRUE(DialAndWait("127.0.0.1:1", Options()).status().code() == Code::kUnavailable);
}

TEST_F(ListenerTest, StrangersGetNoAnswer) {
  Listen();
  for (const std::string text : {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01", "PING\r\n", "\n"}) {
    Stranger stranger(listener_->address());
    stranger.Say(text);
    std::string heard;
    RunUntil([&] {
      heard += stranger.Hear();
      return stranger.closed();
    });
    EXPECT_EQ(heard, "") << text;
  }
  EXPECT_EQ(counters().garbage, 3U);
  EXPECT_EQ(counters().tls_failed, 1U);
  EXPECT_EQ(counters().accepted, 0U);
}

TEST_F(ListenerTest, TheKernelSaysWhoseThePeerIs) {
  Listen();
  Link dialled;
  Link accepted;
  Connect(Options(), &dialled, &accepted);
  const std::optional<uid_t> user = PeerUser(accepted.local, accepted.peer);
  if (!user) GTEST_SKIP() << "this kernel does not";
  EXPECT_EQ(*user, geteuid());
  EXPECT_EQ(PeerUser(dialled.local, dialled.peer), user);
  SocketAddress nobody = accepted.peer;
  reinterpret_cast<sockaddr_in*>(&nobody.storage)->sin_port = 1;
  EXPECT_EQ(PeerUser(accepted.local, nobody), std::nullopt);
}

TEST_F(ListenerTest, AnotherUserOfTheMachineGetsNothingEvenWithTheToken) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Listen();
  Link dialled;
  Link accepted;
  Connect(Options(), &dialled, &accepted);
  if (!PeerUser(accepted.local, accepted.peer)) GTEST_SKIP() << "this kernel does not say whose a peer is";
  // Root may do everything: so the listener becomes user 1, the stranger is user 65534 and has copied the token.
  const std::string address = listener_->address();
  const Keys keys = secrets_->keys();
  ASSERT_EQ(seteuid(65534), 0);
  Stranger stranger(address);
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_EQ(seteuid(1), 0);
  DialerHandshake::Options options;
  options.cluster = keys.cluster;
  options.key = keys.token;
  stranger.Say(DialerHandshake(options).TakeOutgoing());
  std::string heard;
  RunUntil([&] {
    heard += stranger.Hear();
    return stranger.closed();
  });
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(heard, "");
  EXPECT_EQ(counters().other_user, 1U);
  EXPECT_THAT(notes_.back(), HasSubstr("user 65534"));
}

TEST_F(ListenerTest, FramesBeforeTheHandshakeAreNotRead) {
  Listen();
  Stranger stranger(listener_->address());
  stranger.Say(EncodeFrame(Hello{}, 1));
  RunUntil([&] {
    EXPECT_EQ(stranger.Hear(), "");
    return stranger.closed();
  });
  EXPECT_EQ(counters().garbage, 1U);
}

TEST_F(ListenerTest, ARecordedHandshakeIsWorthNothing) {
  Listen();
  // The recording, of a dialer that was accepted.
  DialerHandshake::Options options;
  options.cluster = secrets_->keys().cluster;
  options.key = secrets_->keys().token;
  options.role = LinkRole::kNode;
  options.nonce = RandomBytes<32>();
  DialerHandshake dialer(options);
  const std::string hello = dialer.TakeOutgoing();
  std::string proof;
  {
    Stranger real(listener_->address());
    real.Say(hello);
    std::string challenge;
    RunUntil([&] {
      challenge += real.Hear();
      return challenge.size() >= kLinkHeader + 56;
    });
    ASSERT_TRUE(dialer.Take(BytesOf(challenge).first(kLinkHeader)).ok());
    ASSERT_TRUE(dialer.Take(BytesOf(challenge).subspan(kLinkHeader)).ok());
    proof = dialer.TakeOutgoing();
    real.Say(proof);
    RunUntil([&] { return links_.size() == 1; });
  }
  // Word for word, to the same port and to another of the cluster.
  Stranger replay(listener_->address());
  replay.Say(hello + proof);
  std::string heard;
  RunUntil([&] {
    heard += replay.Hear();
    return replay.closed();
  });
  EXPECT_EQ(links_.size(), 1U);
  EXPECT_EQ(counters().wrong_token, 1U);
}

TEST_F(ListenerTest, ATruncatedHandshakeEndsWithItsSocket) {
  Listen();
  const std::string hello = DialerHandshake({}).TakeOutgoing();
  for (std::size_t size = 0; size < hello.size(); size += 5) {
    Stranger stranger(listener_->address());
    stranger.Say(hello.substr(0, size));
  }
  RunUntil([&] { return counters().gone == (hello.size() + 4) / 5; });
  EXPECT_EQ(listener_->pending(), 0U);
}

TEST_F(ListenerTest, ASlowHandshakeIsCutOffHoweverBusyItLooks) {
  ListenOptions options;
  options.handshake_limit_us = 100'000;
  Listen(options);
  Stranger stranger(listener_->address());
  const std::string hello = DialerHandshake({}).TakeOutgoing();
  std::size_t said = 0;
  const std::int64_t start = base::NowMicros();
  RunUntil([&] {
    if (said < hello.size() - 1) stranger.Say(hello.substr(said++, 1));  // a byte a turn, never the last
    stranger.Hear();
    return stranger.closed();
  });
  EXPECT_GE(base::NowMicros() - start, 100'000);
  EXPECT_EQ(counters().timed_out, 1U);
  EXPECT_EQ(listener_->pending(), 0U);
  EXPECT_THAT(notes_.back(), HasSubstr("100 ms"));
}

TEST_F(ListenerTest, AFloodOfStrangersKeepsNoMemberOut) {
  ListenOptions options;
  options.max_pending = 16;
  Listen(options);
  std::vector<std::unique_ptr<Stranger>> flood;
  for (int i = 0; i < 200; ++i) {
    flood.push_back(std::make_unique<Stranger>(listener_->address()));
    ASSERT_TRUE(flood.back()->connected());
    loop_->RunOnce(0);
    ASSERT_LE(listener_->pending(), 16U);
  }
  RunUntil([&] { return counters().pushed_out == 200 - 16; });
  const Result<Link> link = DialOne(Options());
  ASSERT_TRUE(link.ok()) << link.status().message();
  // The newest strangers still wait, the others were let go at once.
  int closed = 0;
  for (const auto& stranger : flood) {
    stranger->Hear();
    closed += stranger->closed() ? 1 : 0;
  }
  EXPECT_GE(closed, 200 - 16);
}

TEST_F(ListenerTest, OutOfDescriptorsItWaitsAndGoesOn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan needs a descriptor to look at a vptr, and takes the lack of one for a wrong vptr";
#endif
  Listen();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  Stranger stranger(listener_->address());
  // The lowest free number is over the limit now.
  const int free_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(free_fd, 0);
  close(free_fd);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(free_fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  for (int i = 0; i < 20; ++i) loop_->RunOnce(0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(notes_.size(), 1U) << "it must not spin";
  EXPECT_THAT(notes_[0], HasSubstr("ulimit -n"));
  EXPECT_TRUE(DialOne(Options()).ok());
}

TEST_F(ListenerTest, ADialerIsToldThatItIsNotAMantaPort) {
  const base::Fd other(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress target = Resolve(Address{"127.0.0.1", 0}).value().front();
  ASSERT_EQ(bind(other.get(), target.get(), target.size), 0);
  ASSERT_EQ(listen(other.get(), 1), 0);
  std::thread server([&] {
    const base::Fd peer(accept(other.get(), nullptr, nullptr));
    (void)!send(peer.get(), "220 mail.example ESMTP\r\n", 24, MSG_NOSIGNAL);
    char buffer[256];
    while (recv(peer.get(), buffer, sizeof buffer, 0) > 0) {
    }
  });
  const Result<Link> link = DialOne(LocalOf(other.get()).text(), Options());
  server.join();
  ASSERT_FALSE(link.ok());
  EXPECT_THAT(link.status().message(), HasSubstr("not a manta port"));
}

TEST_F(ListenerTest, ADialerThatIsNotAnsweredGivesUpInTime) {
  const base::Fd silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress target = Resolve(Address{"127.0.0.1", 0}).value().front();
  ASSERT_EQ(bind(silent.get(), target.get(), target.size), 0);
  ASSERT_EQ(listen(silent.get(), 8), 0);
  DialOptions options = Options();
  options.timeout_us = 50'000;
  const std::string address = LocalOf(silent.get()).text();
  const Result<Link> link = DialOne(address, options);
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.status().code(), Code::kTimedOut);
  EXPECT_EQ(DialAndWait(address, options).status().code(), Code::kTimedOut);
}

TEST_F(ListenerTest, NobodyThereIsSaidAtOnce) {
  Listen();
  const std::string address = listener_->address();
  listener_.reset();
  EXPECT_THAT(DialOne(address, Options()).status().message(), HasSubstr("nobody listens"));
  EXPECT_THAT(DialAndWait(address, Options()).status().message(), HasSubstr("nobody listens"));
  EXPECT_EQ(DialOne("no port", Options()).status().code(), Code::kInvalid);
}

TEST_F(ListenerTest, OfSeveralHostsTheOneThatServesIsFound) {
  Listen();
  const std::string gone = listener_->address();
  listener_.reset();
  const base::Fd silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress target = Resolve(Address{"127.0.0.1", 0}).value().front();
  ASSERT_EQ(bind(silent.get(), target.get(), target.size), 0);
  ASSERT_EQ(listen(silent.get(), 8), 0);
  const std::string hangs = LocalOf(silent.get()).text();
  EXPECT_THAT(DialOne(gone + "," + gone, Options()).status().message(), HasSubstr("nobody listens"));
  EXPECT_THAT(DialAndWait(gone + "," + gone, Options()).status().message(), HasSubstr("nobody listens"));
  // Of one that hangs nobody knows whether it serves others.
  DialOptions options = Options();
  options.timeout_us = 100'000;
  EXPECT_EQ(DialOne(hangs + "," + gone, options).status().code(), Code::kTimedOut);
  EXPECT_EQ(DialAndWait(gone + "," + hangs, options).status().code(), Code::kTimedOut);
  Listen();
  options.timeout_us = 3'000'000;
  EXPECT_TRUE(DialOne(gone + "," + hangs + "," + listener_->address(), options).ok());
  EXPECT_TRUE(DialOne(listener_->address() + "," + gone, options).ok());
  EXPECT_EQ(DialOne(listener_->address() + ",no port", options).status().code(), Code::kInvalid);
}

TEST_F(ListenerTest, PlainIsNeverDialledToAnotherMachine) {
  const Result<Link> link = DialOne("192.0.2.1:1", Options());
  ASSERT_FALSE(link.ok());
  EXPECT_THAT(link.status().message(), HasSubstr("need TLS"));
}

TEST_F(ListenerTest, ADialThatIsDestroyedCallsNobody) {
  Listen();
  bool called = false;
  {
    const Dial dial(*loop_, listener_->address(), Options(), [&](Result<Link>) { called = true; });
    loop_->RunOnce(0);
  }
  for (int i = 0; i < 5; ++i) loop_->RunOnce(1000);
  EXPECT_FALSE(called);
}

TEST_F(ListenerTest, TheListenerMayBeDestroyedByWhoIsCalledBack) {
  ListenOptions options;
  options.secrets = secrets_;
  bool called = false;
  listener_ = std::move(*Listener::Create(*loop_, options, [&](Link) {
    listener_.reset();
    called = true;
  }));
  const Result<Link> link = DialOne(Options());
  RunUntil([&] { return called; });
}

TEST_F(ListenerTest, PlainThreadsCanListenAndDial) {
  ListenOptions options;
  options.secrets = secrets_;
  Result<std::unique_ptr<BlockingListener>> listener = BlockingListener::Create(options);
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ((*listener)->Accept(1000).status().code(), Code::kTimedOut);
  std::thread client([&] {
    Result<Link> link = DialAndWait((*listener)->address(), Options());
    ASSERT_TRUE(link.ok()) << link.status().message();
    EXPECT_TRUE(link->stream.WriteAll(BytesOf("hello"), 1'000'000).ok());
    std::array<std::byte, 1> end{};
    EXPECT_EQ(link->stream.ReadSome(end, 1'000'000).value(), 0U);
  });
  Result<Link> link = (*listener)->Accept(5'000'000);
  ASSERT_TRUE(link.ok());
  std::string heard(5, '\0');
  EXPECT_TRUE(link->stream.ReadAll(std::as_writable_bytes(std::span(heard)), 1'000'000).ok());
  EXPECT_EQ(heard, "hello");
  link->stream.Close();
  client.join();
}

TEST(Address, IsParsedAndPrinted) {
  EXPECT_EQ(ToString(ParseAddress("127.0.0.1:80").value()), "127.0.0.1:80");
  EXPECT_EQ(ToString(ParseAddress("[::1]:80").value()), "[::1]:80");
  EXPECT_EQ(ToString(ParseAddress("head:6400").value()), "head:6400");
  EXPECT_EQ(ToString(ParseAddress("head", 6400).value()), "head:6400");
  EXPECT_EQ(ToString(ParseAddress("[fe80::1]", 1).value()), "[fe80::1]:1");
  for (const char* const bad : {"", ":80", "head", "head:", "head:x", "head:65536", "head:-1", "::1:80", "[::1",
                                "[::1]80", "head:80 ", "[]:80", "head:0x50"}) {
    EXPECT_FALSE(ParseAddress(bad).ok()) << bad;
  }
}

TEST(Address, KnowsWhatStaysOnThisMachine) {
  const auto loopback = [](const char* host) { return Resolve(Address{host, 1}).value().front().loopback(); };
  EXPECT_TRUE(loopback("127.0.0.1"));
  EXPECT_TRUE(loopback("127.8.8.8"));
  EXPECT_TRUE(loopback("localhost"));
  EXPECT_TRUE(loopback("::1"));
  EXPECT_TRUE(loopback("::ffff:127.0.0.1"));
  EXPECT_FALSE(loopback("0.0.0.0"));
  EXPECT_FALSE(loopback("128.0.0.1"));
  EXPECT_FALSE(loopback("::"));
  EXPECT_FALSE(loopback("::ffff:10.0.0.1"));
  EXPECT_FALSE(loopback("fe80::1"));
}

}  // namespace
}  // namespace manta::wire
