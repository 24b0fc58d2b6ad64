// TLS between nodes, the cluster's authority, and joins.
#include "wire/tls.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <fstream>
#include <numeric>
#include <thread>

#include "wire/authority.h"
#include "wire/connection.h"
#include "wire/join.h"
#include "wire/link_fixture.h"

namespace manta::wire {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;

mode_t ModeOf(const std::string& path) {
  struct stat info{};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777U;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TlsTest : public LinkFixture {
 protected:
  void ListenTls(bool joins = false) {
    ListenOptions options;
    options.tls = true;
    options.accept_joins = joins;
    Listen(options);
  }
  DialOptions TlsOptions(LinkRole role = LinkRole::kNode) {
    DialOptions options = Options(role);
    options.always_tls = true;
    return options;
  }
  // A node of its own folder that joins by the head's listener, on a thread as it blocks.
  Status JoinAs(const std::string& token, const std::string& name, std::vector<std::string> hosts = {}) {
    Status status;
    bool done = false;
    std::thread joiner([&] { status = Join(token, scratch_ / name, hosts); });
    std::thread watcher([&] {
      joiner.join();
      __atomic_store_n(&done, true, __ATOMIC_RELEASE);
    });
    RunUntil([&] { return __atomic_load_n(&done, __ATOMIC_ACQUIRE); });
    watcher.join();
    return status;
  }
  std::string NewJoinToken(std::int64_t seconds = 60) {
    Result<std::string> token = MakeJoinToken(*secrets_, listener_->address(), seconds);
    EXPECT_TRUE(token.ok()) << token.status().message();
    return *token;
  }
};

TEST_F(TlsTest, MembersTalkEncryptedAndBothAreCertified) {
  ListenTls();
  Link dialled;
  Link accepted;
  Connect(TlsOptions(), &dialled, &accepted);
  for (Link* const link : {&dialled, &accepted}) {
    EXPECT_TRUE(link->stream.encrypted());
    EXPECT_TRUE(link->stream.tls()->certified());
    EXPECT_EQ(link->stream.raw_fd(), -1);
  }
  EXPECT_EQ(dialled.stream.tls()->Exported(), accepted.stream.tls()->Exported());
  ASSERT_TRUE(dialled.stream.WriteAll(BytesOf("secret words"), 1'000'000).ok());
  std::string heard(12, '\0');
  ASSERT_TRUE(accepted.stream.ReadAll(std::as_writable_bytes(std::span(heard)), 1'000'000).ok());
  EXPECT_EQ(heard, "secret words");
  EXPECT_EQ(accepted.stream.Read(std::as_writable_bytes(std::span(heard))).state, IoState::kWouldBlock);
  dialled.stream.Close();
  EXPECT_EQ(accepted.stream.ReadSome(std::as_writable_bytes(std::span(heard)), 1'000'000).value(), 0U);
}

TEST_F(TlsTest, FilesAreMadeWithTheirModes) {
  ListenTls();
  EXPECT_EQ(ModeOf(scratch_ / "head"), 0700U);
  for (const char* const secret : {"token", "ca.key", "node.key"}) {
    EXPECT_EQ(ModeOf(scratch_ / "head/" + secret), 0600U) << secret;
  }
  NewJoinToken();
  EXPECT_EQ(ModeOf(scratch_ / "head/joins"), 0600U);
  ASSERT_EQ(chmod((scratch_ / "head/node.key").c_str(), 0640), 0);
  const Result<std::shared_ptr<Secrets>> again = Secrets::Open(scratch_ / "head");
  EXPECT_THAT((*again.value()).Member().status().message(), HasSubstr("chmod 600"));
}

TEST_F(TlsTest, APortWithTlsStillTakesPlainFromThisMachine) {
  ListenTls();
  Link dialled;
  Link accepted;
  Connect(Options(), &dialled, &accepted);
  EXPECT_FALSE(accepted.stream.encrypted());
}

TEST_F(TlsTest, APortWithoutTlsClosesOnIt) {
  ASSERT_TRUE(EnsureCertificate(*secrets_, {}).ok());
  Listen();
  const Result<Link> link = DialOne(TlsOptions());
  ASSERT_FALSE(link.ok());
  EXPECT_THAT(link.status().message(), HasSubstr("TLS"));
  EXPECT_EQ(counters().tls_failed, 1U);
}

TEST_F(TlsTest, ACertificateOfAForgedAuthorityIsRefusedByBothSides) {
  ListenTls();
  // Everything of the real cluster is known to the forger, the token too, but not the authority's key.
  const auto forger = NewSecrets("forger");
  std::ofstream(scratch_ / "forger/token") << ReadFile(scratch_ / "head/token");
  ASSERT_TRUE(EnsureCertificate(*forger, {}).ok());
  ASSERT_EQ(forger->keys().token, secrets_->keys().token);

  // It dials us: each side finds the other's certificate worthless.
  DialOptions options = TlsOptions();
  options.secrets = forger;
  const Result<Link> link = DialOne(options);
  ASSERT_FALSE(link.ok());
  EXPECT_THAT(link.status().message(), HasSubstr("certificate"));
  RunUntil([&] { return counters().tls_failed == 1; });
  EXPECT_EQ(counters().accepted, 0U);

  // It trusts our authority, and only shows its own certificate.
  const std::string authority = ReadFile(scratch_ / "forger/ca.crt");
  std::ofstream(scratch_ / "forger/ca.crt") << ReadFile(scratch_ / "head/ca.crt");
  options.secrets = Secrets::Open(scratch_ / "forger").value();
  EXPECT_FALSE(DialOne(options).ok());
  RunUntil([&] { return counters().tls_failed == 2; });
  EXPECT_EQ(counters().accepted, 0U);

  // It listens, we dial.
  std::ofstream(scratch_ / "forger/ca.crt") << authority;
  ListenOptions trap;
  trap.secrets = Secrets::Open(scratch_ / "forger").value();
  trap.tls = true;
  Listen(trap);
  const Result<Link> trapped = DialOne(TlsOptions());
  ASSERT_FALSE(trapped.ok());
  EXPECT_THAT(trapped.status().message(), HasSubstr("the peer's certificate was refused"));
}

TEST_F(TlsTest, AWrongTokenIsRefusedUnderTlsToo) {
  ListenTls();
  // A member that was shut out: its certificate is good, its token is old.
  const Keys old = secrets_->keys();
  ASSERT_TRUE(secrets_->RotateToken(0).ok());
  DialOptions options = TlsOptions();
  options.context = secrets_->Member().value();
  options.secrets = Secrets::FromKeys(old);
  EXPECT_THAT(DialOne(options).status().message(), HasSubstr("wrong token"));
  EXPECT_EQ(counters().wrong_token, 1U);
}

TEST_F(TlsTest, TlsWithoutACertificateServesNothingButJoins) {
  ListenTls(true);
  Result<std::unique_ptr<TlsContext>> context =
      (*LoadTls().value()).Joining(AuthorityFingerprint(scratch_ / "head").value());
  ASSERT_TRUE(context.ok());
  DialOptions options = Options();
  options.context = std::move(*context);
  EXPECT_THAT(DialOne(options).status().message(), HasSubstr("no certificate"));
  EXPECT_EQ(counters().no_certificate, 1U);
}

TEST_F(TlsTest, ACertificateForAnotherHostIsRefused) {
  ListenTls();
  DialOptions options = TlsOptions();
  options.name = "192.0.2.7";
  EXPECT_THAT(DialOne(options).status().message(), HasSubstr("mismatch"));
  options.name = "other.example";
  EXPECT_THAT(DialOne(options).status().message(), HasSubstr("mismatch"));
  options.name = "localhost";
  EXPECT_TRUE(DialOne(options).ok());
}

TEST_F(TlsTest, AHeadThatListensElsewhereGetsACertificateForBoth) {
  ASSERT_TRUE(EnsureCertificate(*secrets_, {"192.0.2.1", "head.example"}).ok());
  const std::string first = ReadFile(scratch_ / "head/node.crt");
  ASSERT_TRUE(EnsureCertificate(*secrets_, {"head.example"}).ok());
  EXPECT_EQ(ReadFile(scratch_ / "head/node.crt"), first);
  const std::string authority = ReadFile(scratch_ / "head/ca.crt");
  ASSERT_TRUE(EnsureCertificate(*secrets_, {"2001:db8::1"}).ok());
  const auto hosts = (*LoadTls().value()).Hosts(ReadFile(scratch_ / "head/node.crt"));
  EXPECT_THAT(hosts.value(), Contains("192.0.2.1"));
  EXPECT_THAT(hosts.value(), Contains("2001:db8::1"));
  EXPECT_THAT(hosts.value(), Contains("head.example"));
  EXPECT_THAT(hosts.value(), Contains("127.0.0.1"));
  EXPECT_EQ(ReadFile(scratch_ / "head/ca.crt"), authority);
  EXPECT_FALSE(EnsureCertificate(*secrets_, {"bad name,DNS:evil"}).ok());
}

TEST_F(TlsTest, ListensBeyondLoopbackAndTakesOnlyTlsThere) {
  // An address of this machine that is not loopback, if it has one.
  std::string host;
  ifaddrs* list = nullptr;
  ASSERT_EQ(getifaddrs(&list), 0);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    SocketAddress one;
    one.size = sizeof(sockaddr_in);
    std::memcpy(&one.storage, entry->ifa_addr, one.size);
    if (!one.loopback()) host = one.host();
  }
  freeifaddrs(list);
  if (host.empty()) GTEST_SKIP() << "only loopback here";
  ListenOptions options;
  options.address = "0.0.0.0:0";
  options.tls = true;
  Listen(options);
  const std::uint16_t port = ParseAddress(listener_->address()).value().port;
  EXPECT_THAT(listener_->address(), testing::Not(testing::StartsWith("0.0.0.0")));
  const Result<Link> named = DialOne(listener_->address(), Options());
  EXPECT_TRUE(named.ok()) << listener_->address() << ": " << named.status().message();
  const std::string outside = Cat(host, ":", port);
  const Result<Link> link = DialOne(outside, Options());  // TLS without being asked
  ASSERT_TRUE(link.ok()) << link.status().message();
  EXPECT_TRUE(link.value().stream.encrypted());
  const Result<Link> inside = DialOne(Cat("127.0.0.1:", port), Options());
  ASSERT_TRUE(inside.ok());
  EXPECT_FALSE(inside.value().stream.encrypted());

  // Plain words to the outside address, with the right token.
  DialerHandshake::Options plain;
  plain.cluster = secrets_->keys().cluster;
  plain.key = secrets_->keys().token;
  base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress target = Resolve(ParseAddress(outside).value()).value().front();
  ASSERT_EQ(connect(socket.get(), target.get(), target.size), 0);
  Stream stream(std::move(socket));
  DialerHandshake dialer(plain);
  ASSERT_TRUE(stream.WriteAll(BytesOf(dialer.TakeOutgoing()), 1000).ok());
  RunUntil([&] { return counters().not_encrypted == 1; });
  Status status;
  while (status.ok()) {
    std::array<std::byte, 512> buffer;
    const Result<std::size_t> got = stream.ReadSome(std::span(buffer).first(dialer.wanted()), 1'000'000);
    ASSERT_TRUE(got.ok());
    ASSERT_GT(got.value(), 0U);
    status = dialer.Take(std::span(buffer).first(got.value()));
  }
  EXPECT_THAT(status.message(), HasSubstr("only TLS"));
}

TEST_F(TlsTest, GarbageInsteadOfTlsEndsTheConnection) {
  ListenTls();
  for (const std::string& text :
       {std::string("\x16"), std::string("\x16\x03\x01\x00\x05hello"), std::string(3000, '\x16')}) {
    base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress target = Resolve(ParseAddress(listener_->address()).value()).value().front();
    ASSERT_EQ(connect(socket.get(), target.get(), target.size), 0);
    ASSERT_EQ(send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    shutdown(socket.get(), SHUT_WR);
    RunUntil([&] { return listener_->pending() == 0 && counters().tls_failed > 0; });
  }
  RunUntil([&] { return counters().tls_failed == 3; });
  EXPECT_EQ(listener_->pending(), 0U);
}

TEST_F(TlsTest, MuchDataArrivesWholeWhenTheReaderIsSlow) {
  ListenTls();
  Link dialled;
  Link accepted;
  Connect(TlsOptions(), &dialled, &accepted);
  std::vector<std::uint32_t> sent(3U << 20);  // 12 MiB
  std::iota(sent.begin(), sent.end(), 0U);
  std::vector<std::uint32_t> received(sent.size());
  std::thread reader(
      [&] { ASSERT_TRUE(accepted.stream.ReadAll(std::as_writable_bytes(std::span(received)), 20'000'000).ok()); });
  // Never waits for the whole: as a loop would, in turns.
  std::span<const std::byte> rest = std::as_bytes(std::span(sent));
  while (!rest.empty() || dialled.stream.WantsWrite()) {
    const IoResult result = dialled.stream.Write(rest.first(std::min<std::size_t>(rest.size(), 777'777)));
    ASSERT_TRUE(result.state == IoState::kSome || result.state == IoState::kWouldBlock);
    rest = rest.subspan(result.bytes);
    if (result.state == IoState::kWouldBlock) {
      ASSERT_TRUE(WaitFor(dialled.stream.fd(), 4 /* POLLOUT */, base::NowMicros() + 10'000'000));
    }
  }
  reader.join();
  EXPECT_EQ(received, sent);
}

TEST_F(TlsTest, BytesThatTheSocketNoLongerHasAreShownAsBuffered) {
  ListenTls();
  Link dialled;
  Link accepted;
  Connect(TlsOptions(), &dialled, &accepted);
  ASSERT_TRUE(dialled.stream.WriteAll(BytesOf(std::string(10000, 'x')), 1'000'000).ok());
  std::array<std::byte, 10> few{};
  ASSERT_TRUE(accepted.stream.ReadAll(few, 1'000'000).ok());
  EXPECT_TRUE(accepted.stream.Buffered());
  std::vector<std::byte> rest(9990);
  ASSERT_TRUE(accepted.stream.ReadAll(rest, 1'000'000).ok());
  EXPECT_EQ(accepted.stream.Read(few).state, IoState::kWouldBlock);
  EXPECT_FALSE(accepted.stream.Buffered());
}

TEST_F(TlsTest, APeerThatVanishesIsAnEndNotACrash) {
  ListenTls();
  Link dialled;
  Link accepted;
  Connect(TlsOptions(), &dialled, &accepted);
  const linger abort{1, 0};  // a reset instead of a farewell
  setsockopt(accepted.stream.fd(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  shutdown(accepted.stream.fd(), SHUT_RDWR);
  accepted.stream.Close();
  std::array<std::byte, 16> buffer{};
  const Result<std::size_t> got = dialled.stream.ReadSome(buffer, 1'000'000);
  EXPECT_TRUE(!got.ok() || got.value() == 0);
  // Writing to it raises no SIGPIPE.
  for (int i = 0; i < 10; ++i) (void)dialled.stream.Write(BytesOf(std::string(100000, 'x')));
}

TEST_F(TlsTest, AnEndThatThePeerDidNotAnnounceIsAFailureAndAnAnnouncedOneIsNot) {
  ListenTls();
  for (const bool bulk : {false, true}) {
    for (const bool announced : {false, true}) {
      Link dialled;
      Link accepted;
      Connect(TlsOptions(), &dialled, &accepted);
      if (bulk) dialled.stream.ExpectBulk();
      ASSERT_TRUE(accepted.stream.WriteAll(BytesOf("last words"), 1'000'000).ok());
      if (!announced) shutdown(accepted.stream.fd(), SHUT_RDWR);
      accepted.stream.Close();
      std::array<std::byte, 10> words{};
      ASSERT_TRUE(dialled.stream.ReadAll(words, 1'000'000).ok());
      const Result<std::size_t> got = dialled.stream.ReadSome(words, 1'000'000);
      if (announced) {
        EXPECT_TRUE(got.ok() && got.value() == 0) << "bulk " << bulk;
      } else {
        EXPECT_THAT(got.status().message(), testing::HasSubstr("without close_notify")) << "bulk " << bulk;
      }
    }
  }
}

TEST_F(TlsTest, EitherEndOrBothMayUseBulkRecordsAndMuchDataArrivesWhole) {
  ListenTls();
  for (int ends = 0; ends < 4; ++ends) {
    Link dialled;
    Link accepted;
    Connect(TlsOptions(), &dialled, &accepted);
    // Some of it was read before, and the rest of that record was decrypted.
    ASSERT_TRUE(dialled.stream.WriteAll(BytesOf("beforehand"), 1'000'000).ok());
    std::array<std::byte, 6> before{};
    ASSERT_TRUE(accepted.stream.ReadAll(before, 1'000'000).ok());
    if ((ends & 1) != 0) dialled.stream.ExpectBulk();
    if ((ends & 2) != 0) accepted.stream.ExpectBulk();
    std::string sent(3'000'000, '?');
    for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 31 / 7);
    std::thread writer([&] { EXPECT_TRUE(dialled.stream.WriteAll(BytesOf(sent), 5'000'000).ok()); });
    std::string got(4 + sent.size(), '?');
    const Status status = accepted.stream.ReadAll(std::as_writable_bytes(std::span(got)), 5'000'000);
    writer.join();
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(got == "hand" + sent) << ends;
    ASSERT_TRUE(accepted.stream.WriteAll(BytesOf("thanks"), 1'000'000).ok());
    ASSERT_TRUE(dialled.stream.ReadAll(before, 1'000'000).ok());
  }
}

TEST_F(TlsTest, ARecordThatIsBrokenOnTheWayEndsTheConnectionWithAnAlert) {
  ListenTls();
  for (const bool bulk : {false, true}) {
    Link dialled;
    Link accepted;
    Connect(TlsOptions(), &dialled, &accepted);
    if (bulk) accepted.stream.ExpectBulk();
    const std::array<unsigned char, 24> forged = {23, 3, 3, 0, 19};
    ASSERT_EQ(send(dialled.stream.fd(), forged.data(), forged.size(), 0), static_cast<ssize_t>(forged.size()));
    std::array<std::byte, 16> buffer{};
    EXPECT_FALSE(accepted.stream.ReadSome(buffer, 1'000'000).ok());
    const Result<std::size_t> told = dialled.stream.ReadSome(buffer, 1'000'000);
    EXPECT_THAT(told.status().message(), testing::ContainsRegex("bad record mac")) << "bulk " << bulk;
  }
}

TEST_F(TlsTest, TheSwitchLeavesBulkTransfersToOpenSsl) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process that has not loaded TLS yet
  EXPECT_EXIT(
      {
        setenv("MANTA_TLS_BULK", "openssl", 1);
        ListenTls();
        Link dialled;
        Link accepted;
        Connect(TlsOptions(), &dialled, &accepted);
        std::_Exit(dialled.stream.tls()->UseBulkRecords() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(TlsTest, FramesTravelOverConnectionsOfBothKinds) {
  ListenTls();
  for (const bool encrypted : {false, true}) {
    Link dialled;
    Link accepted;
    Connect(encrypted ? TlsOptions() : Options(), &dialled, &accepted);
    std::vector<std::size_t> sizes;
    std::size_t echoed = 0;
    bool closed = false;
    std::unique_ptr<Connection> far;
    Connection near(
        *loop_, std::move(dialled.stream), [&](Frame& frame) { echoed += frame.body.size(); }, [&](const Status&) {});
    far = std::make_unique<Connection>(
        *loop_, std::move(accepted.stream),
        [&](Frame& frame) {
          sizes.push_back(frame.body.size());
          far->SendEncoded(EncodeFrame(frame.kind, 0, BytesOf(frame.body), 0));
        },
        [&](const Status& why) {
          closed = true;
          EXPECT_TRUE(why.ok()) << why.message();
        });
    ASSERT_TRUE(near.Start().ok());
    ASSERT_TRUE(far->Start().ok());
    // More than a turn of reading, in frames smaller and larger than a record.
    std::size_t total = 0;
    for (int i = 0; i < 3000; ++i) {
      const std::string body(i % 1000 == 0 ? 8U << 20 : static_cast<std::size_t>(i % 5000), 'x');
      near.SendEncoded(EncodeFrame(Kind::kLogLines, 0, BytesOf(body), 0));
      total += body.size();
      if (i % 100 == 0) loop_->RunOnce(0);
    }
    RunUntil([&] { return echoed == total; });
    EXPECT_EQ(sizes.size(), 3000U);
    EXPECT_EQ(near.outgoing_bytes(), 0U);
    near.SendEncoded(EncodeFrame(Kind::kLogLines, 0, BytesOf("last word"), 0));
    near.CloseAfterSending({});
    RunUntil([&] { return closed; });
    EXPECT_EQ(sizes.back(), 9U) << "encrypted: " << encrypted;
  }
}

// ---- joins ----

TEST(JoinToken, ComesBackAsItWentAndIsCheckedAgainstTypingErrors) {
  JoinToken token;
  token.address = "[2001:db8::1]:6400";
  FillRandom(token.authority);
  FillRandom(token.secret);
  const std::string text = FormatJoinToken(token);
  EXPECT_THAT(text, testing::StartsWith("manta-join-"));
  const Result<JoinToken> back = ParseJoinToken(text + "\n");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back.value().address, token.address);
  EXPECT_EQ(back.value().authority, token.authority);
  EXPECT_EQ(back.value().secret, token.secret);
  for (std::size_t i = 0; i < text.size() - 1; ++i) {  // the last digit has bits to spare
    std::string wrong = text;
    wrong[i] = wrong[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(ParseJoinToken(wrong).ok()) << i;
    EXPECT_FALSE(ParseJoinToken(text.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(ParseJoinToken("").ok());
  EXPECT_FALSE(ParseJoinToken("manta-join-" + std::string(5000, 'A')).ok());
}

TEST_F(TlsTest, ANodeJoinsAndIsAMemberFromThenOn) {
  ListenTls(true);
  const std::string token = NewJoinToken();
  const Status joined = JoinAs(token, "node", {"192.0.2.9", "node.example"});
  ASSERT_TRUE(joined.ok()) << joined.message();
  EXPECT_EQ(counters().joined, 1U);
  EXPECT_EQ(counters().accepted, 0U) << "a join is no link";
  const std::string folder = scratch_ / "node";
  EXPECT_EQ(ModeOf(folder), 0700U);
  EXPECT_EQ(ModeOf(folder + "/token"), 0600U);
  EXPECT_EQ(ModeOf(folder + "/node.key"), 0600U);
  EXPECT_FALSE(HasAuthority(folder)) << "the authority's key stays on the head";
  EXPECT_NE(ReadFile(folder + "/node.key"), ReadFile(scratch_ / "head/node.key"));
  const auto hosts = (*LoadTls().value()).Hosts(ReadFile(folder + "/node.crt"));
  EXPECT_THAT(hosts.value(), Contains("192.0.2.9"));
  EXPECT_THAT(hosts.value(), Contains("node.example"));
  EXPECT_THAT(hosts.value(), Contains("127.0.0.1"));

  const auto node = Secrets::Open(folder).value();
  EXPECT_EQ(node->keys().cluster, secrets_->keys().cluster);
  DialOptions options = TlsOptions();
  options.secrets = node;
  EXPECT_TRUE(DialOne(options).ok()) << "node to head";

  ListenOptions on_node;
  on_node.secrets = node;
  on_node.tls = true;
  Listen(on_node);
  EXPECT_TRUE(DialOne(TlsOptions()).ok()) << "head to node";
  // A node cannot let others in, nor certify itself anew.
  EXPECT_FALSE(MakeJoinToken(*node, "127.0.0.1:1", 60).ok());
  EXPECT_THAT(EnsureCertificate(*node, {"198.51.100.1"}).message(), HasSubstr("join the cluster again"));
  on_node.accept_joins = true;
  EXPECT_FALSE(Listener::Create(*loop_, on_node, [](Link) {}).ok());
}

TEST_F(TlsTest, AJoinTokenIsGoodOnce) {
  ListenTls(true);
  const std::string token = NewJoinToken();
  ASSERT_TRUE(JoinAs(token, "first").ok());
  const Status second = JoinAs(token, "second");
  EXPECT_THAT(second.message(), HasSubstr("used already"));
  EXPECT_EQ(counters().bad_join_token, 1U);
  EXPECT_FALSE(Secrets::Open(scratch_ / "second").ok());
  EXPECT_TRUE(JoinAs(NewJoinToken(), "second").ok());
}

TEST_F(TlsTest, OfTwoThatUseOneJoinTokenAtOnceOneJoins) {
  ASSERT_TRUE(EnsureCertificate(*secrets_, {}).ok());
  const JoinToken token = ParseJoinToken(MakeJoinToken(*secrets_, "127.0.0.1:1", 60).value()).value();
  const KeyId id = IdOf(JoinKey(token));
  std::array<int, 8> taken{};
  std::vector<std::thread> threads;
  for (int& one : taken) threads.emplace_back([&] { one = TakeJoinKey(*secrets_, id, UnixNow()) ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::accumulate(taken.begin(), taken.end(), 0), 1);
}

TEST_F(TlsTest, AnExpiredJoinTokenIsRefused) {
  ASSERT_TRUE(EnsureCertificate(*secrets_, {}).ok());
  const JoinToken token = ParseJoinToken(MakeJoinToken(*secrets_, "127.0.0.1:1", 60).value()).value();
  const KeyId id = IdOf(JoinKey(token));
  EXPECT_TRUE(FindJoinKey(*secrets_, id, UnixNow()).has_value());
  EXPECT_FALSE(FindJoinKey(*secrets_, id, UnixNow() + 61).has_value());
  EXPECT_FALSE(TakeJoinKey(*secrets_, id, UnixNow() + 61));
  // Over the wire: the file says it is over.
  ListenTls(true);
  const std::string text = NewJoinToken(600);
  const Token key = JoinKey(ParseJoinToken(text).value());
  std::ofstream(scratch_ / "head/joins") << ToHexText(key) << " " << UnixNow() - 1 << "\n";
  EXPECT_THAT(JoinAs(text, "late").message(), HasSubstr("expired"));
}

TEST_F(TlsTest, TheHeadKeepsNoJoinTokenOnlyItsHash) {
  ListenTls(true);
  const std::string text = NewJoinToken();
  const JoinToken token = ParseJoinToken(text).value();
  const std::string file = ReadFile(scratch_ / "head/joins");
  EXPECT_EQ(file.find(ToHexText(token.secret)), std::string::npos);
  EXPECT_EQ(file.find(text), std::string::npos);
}

TEST_F(TlsTest, AJoinTokenOfAnotherAuthorityIsFoundOutBeforeAnythingIsSaid) {
  ListenTls(true);
  JoinToken token = ParseJoinToken(NewJoinToken()).value();
  token.authority[0] ^= std::byte{1};
  const Status status = JoinAs(FormatJoinToken(token), "node");
  EXPECT_THAT(status.message(), HasSubstr("the peer's certificate was refused"));
  EXPECT_EQ(counters().bad_join_token, 0U);
  token.authority[0] ^= std::byte{1};
  EXPECT_TRUE(JoinAs(FormatJoinToken(token), "node").ok()) << "it was not used up";
}

TEST_F(TlsTest, AForgedHeadCannotTakeAJoin) {
  ListenTls(true);
  const std::string text = NewJoinToken();
  // The forger has the address, and shows the real authority's certificate along with its own.
  const auto forger = NewSecrets("forger");
  ASSERT_TRUE(EnsureCertificate(*forger, {}).ok());
  std::ofstream(scratch_ / "forger/ca.crt") << ReadFile(scratch_ / "head/ca.crt");
  JoinToken token = ParseJoinToken(text).value();
  ListenOptions options;
  options.secrets = Secrets::Open(scratch_ / "forger").value();
  options.tls = true;
  options.accept_joins = true;
  Listen(options);
  token.address = listener_->address();
  EXPECT_THAT(JoinAs(FormatJoinToken(token), "node").message(), HasSubstr("the peer's certificate was refused"));
  EXPECT_FALSE(Secrets::Open(scratch_ / "node").ok());
}

TEST_F(TlsTest, AFolderOfAnotherClusterIsNotJoinedOver) {
  ListenTls(true);
  const auto other = NewSecrets("other");
  const std::string before = ReadFile(scratch_ / "other/token");
  const std::string token = NewJoinToken();
  EXPECT_THAT(JoinAs(token, "other").message(), HasSubstr("wrong cluster"));
  EXPECT_EQ(ReadFile(scratch_ / "other/token"), before);
  EXPECT_THAT(JoinAs(token, "head").message(), HasSubstr("folder of a head"));
  EXPECT_TRUE(JoinAs(token, "fresh").ok()) << "it was not used up";
  EXPECT_TRUE(JoinAs(NewJoinToken(), "fresh").ok()) << "joining the same cluster again is fine";
}

TEST_F(TlsTest, AHostThatIsNoHostIsRefusedByTheHead) {
  ListenTls(true);
  EXPECT_THAT(JoinAs(NewJoinToken(), "node", {"a,DNS:b"}).message(), HasSubstr("no host name"));
  EXPECT_THAT(JoinAs(NewJoinToken(), "node", std::vector<std::string>(100, "h")).message(), HasSubstr("hosts"));
  EXPECT_FALSE(Secrets::Open(scratch_ / "node").ok());
}

TEST_F(TlsTest, ARequestThatIsNoneIsNotSigned) {
  ASSERT_TRUE(EnsureCertificate(*secrets_, {}).ok());
  for (const std::string& request : {std::string(), std::string("x"), ReadFile(scratch_ / "head/ca.crt")}) {
    EXPECT_FALSE(SignRequest(scratch_ / "head", request, {"192.0.2.1"}).ok());
  }
  // Bent anywhere, the request's own signature is wrong.
  const KeyPair good = (*LoadTls().value()).MakeRequest("node").value();
  ASSERT_TRUE(SignRequest(scratch_ / "head", good.certificate, {"192.0.2.1"}).ok());
  std::string bent = good.certificate;
  const std::size_t middle = bent.size() / 2;
  bent[middle] = bent[middle] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(SignRequest(scratch_ / "head", bent, {"192.0.2.1"}).ok());
}

}  // namespace
}  // namespace manta::wire
