#include "wire/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace manta::wire {
namespace {

using testing::HasSubstr;

const Id kCluster{11, 13};

struct Both {
  DialerHandshake::Options dialer;
  ListenerHandshake::Options listener;
  Token token = RandomBytes<32>();
  int proven = 0;

  Both() {
    dialer.role = LinkRole::kNode;
    dialer.cluster = kCluster;
    dialer.key = token;
    dialer.nonce = RandomBytes<32>();
    listener.cluster = kCluster;
    listener.nonce = RandomBytes<32>();
    listener.find_key = [this](LinkRole, const KeyId& id) {
      return id == IdOf(token) ? std::optional(token) : std::nullopt;
    };
    listener.on_proven = [this](LinkRole, const KeyId&) {
      ++proven;
      return true;
    };
  }
};

// Gives `bytes` to a side in pieces of `piece`; the first failure ends it.
template <typename Side>
Status Give(Side& side, const std::string& bytes, std::size_t piece = 1000) {
  std::span<const std::byte> rest = BytesOf(bytes);
  while (!rest.empty()) {
    if (side.wanted() == 0) return Status(Code::kInvalid, "wants no more");
    const std::size_t count = std::min({piece, side.wanted(), rest.size()});
    if (Status status = side.Take(rest.first(count)); !status.ok()) return status;
    rest = rest.subspan(count);
  }
  return {};
}

struct Outcome {
  Status dialer;
  Status listener;
  Refusal refusal = Refusal::kNone;
  bool dialer_done = false;
  bool listener_done = false;
  std::uint16_t version = 0;
  LinkRole role = LinkRole::kTool;
  std::string sent;  // by the dialer
};

Outcome Shake(const Both& both, std::size_t piece = 1000) {
  DialerHandshake dialer(both.dialer);
  ListenerHandshake listener(both.listener);
  Outcome outcome;
  while (outcome.dialer.ok() && outcome.listener.ok()) {
    const std::string to_listener = dialer.TakeOutgoing();
    outcome.sent += to_listener;
    outcome.listener = Give(listener, to_listener, piece);
    const std::string to_dialer = listener.TakeOutgoing();
    if (to_listener.empty() && to_dialer.empty()) break;
    outcome.dialer = Give(dialer, to_dialer, piece);
  }
  outcome.refusal = listener.refusal();
  outcome.dialer_done = dialer.done();
  outcome.listener_done = listener.done();
  outcome.version = listener.version();
  outcome.role = listener.role();
  return outcome;
}

void ExpectRefused(const Outcome& outcome, Refusal reason, const std::string& said) {
  EXPECT_FALSE(outcome.dialer_done);
  EXPECT_FALSE(outcome.listener_done);
  EXPECT_EQ(outcome.refusal, reason);
  EXPECT_THAT(outcome.dialer.message(), HasSubstr(said));
  EXPECT_FALSE(outcome.listener.ok());
}

TEST(Handshake, MembersAcceptEachOtherInPiecesOfAnySize) {
  for (const std::size_t piece : {1U, 2U, 7U, 12U, 13U, 76U, 1000U}) {
    Both both;
    const Outcome outcome = Shake(both, piece);
    EXPECT_TRUE(outcome.dialer_done) << outcome.dialer.message();
    EXPECT_TRUE(outcome.listener_done) << outcome.listener.message();
    EXPECT_EQ(outcome.role, LinkRole::kNode);
    EXPECT_EQ(outcome.version, 1);
    EXPECT_EQ(both.proven, 1);
  }
}

TEST(Handshake, DoesNotShowTheToken) {
  Both both;
  const Outcome outcome = Shake(both);
  const std::string token(reinterpret_cast<const char*>(both.token.data()), both.token.size());
  EXPECT_EQ(outcome.sent.find(token.substr(0, 8)), std::string::npos);
}

TEST(Handshake, AWrongTokenIsRefusedAndSaidToBe) {
  Both both;
  both.dialer.key[31] ^= std::byte{1};
  const Outcome outcome = Shake(both);
  ExpectRefused(outcome, Refusal::kWrongToken, "wrong token");
  EXPECT_EQ(both.proven, 0);
}

TEST(Handshake, NamingTheRightTokenWithoutKnowingItIsRefused) {
  Both both;
  // The listener takes the wrong key's id for the right one's, as if an attacker had copied the id.
  both.dialer.key[0] ^= std::byte{1};
  both.listener.find_key = [&](LinkRole, const KeyId&) { return std::optional(both.token); };
  ExpectRefused(Shake(both), Refusal::kWrongToken, "wrong token");
  EXPECT_EQ(both.proven, 0);
}

TEST(Handshake, AListenerThatDoesNotKnowTheTokenIsFoundOut) {
  Both both;
  const Token other = RandomBytes<32>();
  DialerHandshake dialer(both.dialer);
  // It says what a listener says, and signs with what it has.
  both.listener.find_key = [&](LinkRole, const KeyId&) { return std::optional(other); };
  ListenerHandshake listener(both.listener);
  ASSERT_TRUE(Give(listener, dialer.TakeOutgoing()).ok());
  ASSERT_TRUE(Give(dialer, listener.TakeOutgoing()).ok());
  const std::string proof = dialer.TakeOutgoing();
  std::string forged = proof;
  forged[8] = 4;  // an Accepted
  const Status status = Give(dialer, forged);
  EXPECT_THAT(status.message(), HasSubstr("does not know the cluster's token"));
  EXPECT_FALSE(dialer.done());
}

TEST(Handshake, AnotherVersionIsRefusedWithBothNamed) {
  Both both;
  both.dialer.versions = {3, 5};
  both.listener.versions = {1, 2};
  const Outcome outcome = Shake(both);
  ExpectRefused(outcome, Refusal::kWrongVersion, "it speaks protocol version 1 to 2, this program 3 to 5");
  EXPECT_THAT(outcome.listener.message(), HasSubstr("3 to 5"));
  both.dialer.versions = {1, 1};
  both.listener.versions = {2, 2};
  ExpectRefused(Shake(both), Refusal::kWrongVersion, "it speaks protocol version 2, this program 1");
  both.dialer.versions = {2, 1};  // nonsense
  both.listener.versions = {1, 2};
  ExpectRefused(Shake(both), Refusal::kWrongVersion, "wrong version");
}

TEST(Handshake, TheNewestCommonVersionIsChosen) {
  Both both;
  both.dialer.versions = {1, 7};
  both.listener.versions = {3, 5};
  EXPECT_EQ(Shake(both).version, 5);
  both.dialer.versions = {1, 4};
  EXPECT_EQ(Shake(both).version, 4);
}

TEST(Handshake, AnotherClusterIsRefusedEvenWithTheSameToken) {
  Both both;
  both.dialer.cluster = Id{99, 98};
  ExpectRefused(Shake(both), Refusal::kWrongCluster, "wrong cluster");
}

TEST(Handshake, ADialerWithoutAClusterIdTakesAnyThatKnowsTheToken) {
  Both both;
  both.dialer.cluster = Id{};
  EXPECT_TRUE(Shake(both).dialer_done);
}

TEST(Handshake, ARoleThatIsNotServedIsRefused) {
  Both both;
  both.listener.roles = RoleBit(LinkRole::kTransfer);
  ExpectRefused(Shake(both), Refusal::kWrongRole, "does not serve connections for `node`");
  both.dialer.role = LinkRole::kTransfer;
  EXPECT_TRUE(Shake(both).listener_done);
  for (int role = 0; role < 256; ++role) {
    both.dialer.role = static_cast<LinkRole>(role);
    EXPECT_EQ(Shake(both).listener_done, both.dialer.role == LinkRole::kTransfer) << role;
  }
}

TEST(Handshake, PlainFromAnotherMachineIsRefused) {
  Both both;
  both.listener.plain_is_local = false;
  ExpectRefused(Shake(both), Refusal::kPlain, "only TLS");
}

TEST(Handshake, TlsWithoutACertificateServesOnlyToJoin) {
  Both both;
  both.dialer.binding.encrypted = both.listener.binding.encrypted = true;
  both.listener.roles |= RoleBit(LinkRole::kJoin);
  ExpectRefused(Shake(both), Refusal::kCertificate, "no certificate");
  both.dialer.role = LinkRole::kJoin;
  EXPECT_TRUE(Shake(both).listener_done);
  both.listener.binding.certified = true;
  both.dialer.role = LinkRole::kNode;
  EXPECT_TRUE(Shake(both).listener_done);
  both.dialer.role = LinkRole::kJoin;
  both.dialer.binding.encrypted = both.listener.binding.encrypted = false;
  ExpectRefused(Shake(both), Refusal::kPlain, "only TLS");
}

TEST(Handshake, AOneTimeKeyThatWasUsedMeanwhileIsRefused) {
  Both both;
  both.listener.on_proven = [](LinkRole, const KeyId&) { return false; };
  ExpectRefused(Shake(both), Refusal::kJoinToken, "was used already");
}

TEST(Handshake, AProofForOneTlsConnectionDoesNotServeOnAnother) {
  Both both;
  both.dialer.binding = {true, true, RandomBytes<32>()};
  both.listener.binding = {true, true, RandomBytes<32>()};
  ExpectRefused(Shake(both), Refusal::kWrongToken, "wrong token");
}

TEST(Handshake, RecordedBytesAreWorthNothing) {
  Both both;
  const Outcome first = Shake(both);
  ASSERT_TRUE(first.listener_done);
  both.listener.nonce = RandomBytes<32>();
  ListenerHandshake listener(both.listener);
  // The whole recording at once is too much at first; so as a recorder would: message by message.
  const std::string hello = first.sent.substr(0, kLinkHeader + 64);
  const std::string proof = first.sent.substr(kLinkHeader + 64);
  ASSERT_TRUE(Give(listener, hello).ok());
  EXPECT_FALSE(Give(listener, proof).ok());
  EXPECT_EQ(listener.refusal(), Refusal::kWrongToken);
  EXPECT_FALSE(listener.done());
  EXPECT_EQ(both.proven, 1);
}

TEST(Handshake, AProofSentBackToItsMakerIsRefused) {
  // The attacker listens, takes a dialer's messages and sends them back as its own.
  Both both;
  DialerHandshake dialer(both.dialer);
  std::string hello = dialer.TakeOutgoing();
  EXPECT_FALSE(Give(dialer, hello).ok());  // a Hello is no Challenge

  // It answers with a Challenge that repeats the dialer's nonce, then returns the dialer's proof.
  DialerHandshake second(both.dialer);
  hello = second.TakeOutgoing();
  ListenerHandshake::Options options = both.listener;
  options.nonce = both.dialer.nonce;
  ListenerHandshake mirror(options);
  ASSERT_TRUE(Give(mirror, hello).ok());
  ASSERT_TRUE(Give(second, mirror.TakeOutgoing()).ok());
  std::string proof = second.TakeOutgoing();
  proof[8] = 4;
  EXPECT_FALSE(Give(second, proof).ok());
  EXPECT_FALSE(second.done());
}

TEST(Handshake, EveryFlippedBitOfEveryMessageIsFatal) {
  Both both;
  const std::string hello = DialerHandshake(both.dialer).TakeOutgoing();
  for (std::size_t bit = 0; bit < hello.size() * 8; ++bit) {
    DialerHandshake dialer(both.dialer);
    ListenerHandshake listener(both.listener);
    std::string bytes = dialer.TakeOutgoing();
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    bool done = false;
    if (Give(listener, bytes).ok()) {
      if (Give(dialer, listener.TakeOutgoing()).ok()) {
        done = Give(listener, dialer.TakeOutgoing()).ok() && listener.done();
      }
    }
    // The header's unused byte is signed, too.
    EXPECT_FALSE(done) << "bit " << bit;
  }
}

TEST(Handshake, GarbageIsKnownByItsFirstByte) {
  Both both;
  for (const std::string text : {"GET / HTTP/1.1\r\n", "\x16\x03\x01", "x", "*1\r\n$4\r\nPING\r\n"}) {
    ListenerHandshake listener(both.listener);
    const Status status = Give(listener, text.substr(0, 1));
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_EQ(listener.TakeOutgoing(), "");  // no answer to a stranger
    DialerHandshake dialer(both.dialer);
    EXPECT_THAT(Give(dialer, text.substr(0, 1)).message(), HasSubstr("not a manta port"));
  }
}

TEST(Handshake, AnAbsurdLengthIsRefusedBeforeItIsRead) {
  Both both;
  std::string hello = DialerHandshake(both.dialer).TakeOutgoing();
  hello[10] = '\xff';
  hello[11] = '\xff';
  ListenerHandshake listener(both.listener);
  EXPECT_THAT(Give(listener, hello.substr(0, kLinkHeader)).message(), HasSubstr("over the limit"));
}

TEST(Handshake, ShortBodiesAndMessagesOutOfTurnAreRefused) {
  Both both;
  const std::string hello = DialerHandshake(both.dialer).TakeOutgoing();
  for (std::size_t size = 0; size < 64; ++size) {
    ListenerHandshake listener(both.listener);
    std::string cut = hello.substr(0, kLinkHeader + size);
    cut[10] = static_cast<char>(size);
    EXPECT_FALSE(Give(listener, cut).ok()) << size;
  }
  for (int type = 0; type < 256; ++type) {
    if (type == 1) continue;
    ListenerHandshake listener(both.listener);
    std::string other = hello;
    other[8] = static_cast<char>(type);
    EXPECT_FALSE(Give(listener, other).ok()) << type;
  }
}

TEST(Handshake, WantsNoByteThatFollowsIt) {
  Both both;
  DialerHandshake dialer(both.dialer);
  ListenerHandshake listener(both.listener);
  EXPECT_EQ(listener.wanted(), kLinkHeader);
  ASSERT_TRUE(Give(listener, dialer.TakeOutgoing()).ok());
  ASSERT_TRUE(Give(dialer, listener.TakeOutgoing()).ok());
  ASSERT_TRUE(Give(listener, dialer.TakeOutgoing()).ok());
  ASSERT_TRUE(listener.done());
  EXPECT_EQ(listener.wanted(), 0U);
  ASSERT_TRUE(Give(dialer, listener.TakeOutgoing()).ok());
  EXPECT_EQ(dialer.wanted(), 0U);
}

}  // namespace
}  // namespace manta::wire
