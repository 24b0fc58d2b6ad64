// Records of TLS 1.3: against the RFC's own example, against OpenSSL as the peer, and against whoever changes them.
#include "wire/tls/records.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <vector>

#include "wire/authority.h"
#include "wire/link_fixture.h"
#include "wire/stream.h"

namespace manta::wire {
namespace {

using tls::Alert;
using tls::ContentType;
using tls::Control;
using tls::kRecordContent;
using tls::kRecordExtra;
using tls::RecordKeys;

std::vector<std::byte> FromHex(std::string_view text) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

Digest SecretOf(std::string_view hex) {
  Digest secret{};
  const std::vector<std::byte> bytes = FromHex(hex);
  std::copy(bytes.begin(), bytes.end(), secret.begin());
  return secret;
}

std::vector<std::byte> Numbers(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

// RFC 8448, section 3: the client's application data.
constexpr char kExampleSecret[] = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";
constexpr char kExampleRecord[] =
    "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a297"
    "7014bd1e3deae63aeebb21694915e4";

TEST(Records, AreThoseOfTheRfcsExample) {
  for (const bool wide : {true, false}) {
    RecordKeys keys(wide);
    keys.Set(SecretOf(kExampleSecret));
    const std::vector<std::byte> content = Numbers(50);
    std::vector<std::byte> record(content.size() + kRecordExtra);
    EXPECT_EQ(keys.Seal(content, ContentType::kData, record.data()), record.size());
    EXPECT_EQ(record, FromHex(kExampleRecord));
    keys.Set(SecretOf(kExampleSecret));
    std::vector<std::byte> opened(50);
    std::byte type{};
    ASSERT_TRUE(keys.Open(record, opened.data(), &type));
    EXPECT_EQ(static_cast<ContentType>(type), ContentType::kData);
    EXPECT_EQ(opened, content);
  }
}

TEST(Records, OfBothImplementationsAreTheSameInAllSizes) {
  RecordKeys wide(true);
  RecordKeys narrow(false);
  RecordKeys reader(false);
  for (RecordKeys* const keys : {&wide, &narrow, &reader}) keys->Set(SecretOf(kExampleSecret));
  std::vector<std::byte> one(kRecordContent + kRecordExtra);
  std::vector<std::byte> other(one.size());
  std::vector<std::byte> opened(kRecordContent);
  const std::vector<std::byte> content = Numbers(kRecordContent);
  for (std::size_t size = 0; size <= kRecordContent; size = size < 600 ? size + 1 : size + 509) {
    const std::size_t count = wide.Seal(std::span(content).first(size), ContentType::kData, one.data());
    ASSERT_EQ(narrow.Seal(std::span(content).first(size), ContentType::kData, other.data()), count);
    ASSERT_TRUE(std::equal(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(count), other.begin())) << size;
    std::byte type{};
    ASSERT_TRUE(reader.Open(std::span(one).first(count), opened.data(), &type)) << size;
    ASSERT_TRUE(std::equal(opened.begin(), opened.begin() + static_cast<std::ptrdiff_t>(size), content.begin()))
        << size;
  }
}

TEST(Records, ThatWereChangedRepeatedOrReorderedAreRefused) {
  for (const bool wide : {true, false}) {
    RecordKeys writer(wide);
    writer.Set(SecretOf(kExampleSecret));
    const std::vector<std::byte> content = Numbers(100);
    std::vector<std::byte> first(content.size() + kRecordExtra);
    std::vector<std::byte> second(first.size());
    writer.Seal(content, ContentType::kData, first.data());
    writer.Seal(content, ContentType::kAlert, second.data());
    std::vector<std::byte> opened(content.size());
    std::byte type{};
    for (std::size_t i = 0; i < first.size(); ++i) {
      RecordKeys reader(wide);
      reader.Set(SecretOf(kExampleSecret));
      std::vector<std::byte> changed = first;
      changed[i] ^= std::byte{1};
      EXPECT_FALSE(reader.Open(changed, opened.data(), &type)) << i;
    }
    RecordKeys reader(wide);
    reader.Set(SecretOf(kExampleSecret));
    EXPECT_TRUE(reader.Open(first, opened.data(), &type));
    EXPECT_FALSE(reader.Open(first, opened.data(), &type)) << "twice";
    reader.Set(SecretOf(kExampleSecret));
    EXPECT_FALSE(reader.Open(second, opened.data(), &type)) << "the second first";
    EXPECT_TRUE(reader.Open(second, opened.data(), &type));
    EXPECT_EQ(static_cast<ContentType>(type), ContentType::kAlert);
    EXPECT_FALSE(reader.Open(std::span(first).first(kRecordExtra - 1), opened.data(), &type)) << "too short";
  }
}

TEST(Records, AreUnderOtherKeysAfterAnUpdate) {
  RecordKeys writer;
  RecordKeys reader;
  writer.Set(SecretOf(kExampleSecret));
  reader.Set(SecretOf(kExampleSecret));
  const std::vector<std::byte> content = Numbers(100);
  std::vector<std::byte> record(content.size() + kRecordExtra);
  std::vector<std::byte> opened(content.size());
  std::byte type{};
  for (int round = 0; round < 3; ++round) {
    writer.Update();
    writer.Seal(content, ContentType::kData, record.data());
    EXPECT_FALSE(reader.Open(record, opened.data(), &type));
    reader.Update();
    EXPECT_TRUE(reader.Open(record, opened.data(), &type));
  }
}

TEST(Records, GoOnWithTheNumberAtWhichOpenSslStopped) {
  RecordKeys writer;
  writer.Set(SecretOf(kExampleSecret));
  const std::vector<std::byte> content = Numbers(100);
  std::vector<std::byte> record(content.size() + kRecordExtra);
  for (int i = 0; i < 3; ++i) writer.Seal(content, ContentType::kData, record.data());
  std::vector<std::byte> opened(content.size());
  std::byte type{};
  RecordKeys reader;
  reader.Set(SecretOf(kExampleSecret), 2);
  EXPECT_TRUE(reader.Open(record, opened.data(), &type));
}

// RFC 8446, 5.5: no more than 2^24.5 records under one key.
TEST(Records, AKeyIsWornOutForWritersBeforeItIsForReaders) {
  const std::vector<std::byte> content = Numbers(10);
  std::vector<std::byte> record(content.size() + kRecordExtra);
  std::vector<std::byte> opened(content.size());
  std::byte type{};
  RecordKeys writer;
  RecordKeys reader;
  writer.Set(SecretOf(kExampleSecret), RecordKeys::kMostRecords - 1);
  EXPECT_FALSE(writer.worn());
  writer.Seal(content, ContentType::kData, record.data());
  EXPECT_TRUE(writer.worn());
  writer.Update();
  EXPECT_FALSE(writer.worn());
  for (const std::uint64_t sequence : {RecordKeys::kMostRead - 1, RecordKeys::kMostRead}) {
    writer.Set(SecretOf(kExampleSecret), sequence);
    reader.Set(SecretOf(kExampleSecret), sequence);
    writer.Seal(content, ContentType::kData, record.data());
    EXPECT_EQ(reader.Open(record, opened.data(), &type), sequence < RecordKeys::kMostRead);
  }
}

TEST(RecordFormat, ASizeBeyondTheLimitAndATypeThatIsNotDataAreRefusedWithTheirAlerts) {
  const auto size_of = [](unsigned type, std::size_t length, Alert* alert) {
    const std::array header = {static_cast<std::byte>(type), std::byte{3}, std::byte{3},
                               static_cast<std::byte>(length >> 8), static_cast<std::byte>(length)};
    return tls::RecordSize(header, alert);
  };
  Alert alert{};
  EXPECT_EQ(size_of(23, 17, &alert), kRecordExtra);
  EXPECT_EQ(size_of(23, kRecordContent + 17, &alert), kRecordContent + kRecordExtra);
  EXPECT_EQ(size_of(23, kRecordContent + 18, &alert), 0U);
  EXPECT_EQ(alert, Alert::kRecordOverflow);
  EXPECT_EQ(size_of(23, 16, &alert), 0U);
  EXPECT_EQ(alert, Alert::kDecodeError);
  EXPECT_EQ(size_of(20, 17, &alert), 0U) << "change_cipher_spec, which has no place after the handshake";
  EXPECT_EQ(alert, Alert::kUnexpectedMessage);
}

TEST(RecordFormat, PaddingIsTakenOffAndARecordOfPaddingAloneIsRefused) {
  const std::vector<std::byte> plain = FromHex("aabb");
  tls::Inner inner = tls::WithoutPadding(plain, std::byte{23});
  EXPECT_TRUE(inner.ok && inner.type == ContentType::kData && inner.size == 2);
  inner = tls::WithoutPadding(FromHex("aabb00170000"), std::byte{0});
  EXPECT_TRUE(inner.ok && inner.type == ContentType::kData && inner.size == 3);
  EXPECT_FALSE(tls::WithoutPadding(FromHex("0000"), std::byte{0}).ok);
  EXPECT_FALSE(tls::WithoutPadding({}, std::byte{0}).ok);
}

TEST(RecordFormat, AlertsAndKeyUpdatesAreReadAndEverythingElseIsRefused) {
  const auto read = [](ContentType type, std::string_view hex) { return tls::ReadControl(type, FromHex(hex)); };
  EXPECT_EQ(read(ContentType::kAlert, "0100").control, Control::kClosed);
  EXPECT_EQ(read(ContentType::kAlert, "015a").control, Control::kNothing);
  EXPECT_EQ(read(ContentType::kAlert, "0214").control, Control::kAlert);
  EXPECT_EQ(read(ContentType::kAlert, "0214").alert, Alert::kBadRecordMac);
  EXPECT_EQ(read(ContentType::kAlert, "02").alert, Alert::kDecodeError);
  EXPECT_EQ(read(ContentType::kAlert, "").alert, Alert::kUnexpectedMessage);
  EXPECT_EQ(read(ContentType::kHandshake, "1800000100").control, Control::kKeyUpdate);
  EXPECT_EQ(read(ContentType::kHandshake, "1800000101").control, Control::kKeyUpdateWanted);
  EXPECT_EQ(read(ContentType::kHandshake, "1800000102").alert, Alert::kIllegalParameter);
  EXPECT_EQ(read(ContentType::kHandshake, "18000001").alert, Alert::kDecodeError);
  EXPECT_EQ(read(ContentType::kHandshake, "180000010018").alert, Alert::kDecodeError) << "more behind it";
  EXPECT_EQ(read(ContentType::kHandshake, "0400000100").alert, Alert::kUnexpectedMessage) << "a ticket";
  EXPECT_EQ(read(static_cast<ContentType>(20), "01").alert, Alert::kUnexpectedMessage);
}

TEST(RecordFormat, RecordsAreCountedHoweverTheyAreCut) {
  const std::vector<std::byte> bytes = FromHex("1703030002aabb16030300001703030001cc");
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    tls::RecordCounter counter;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      counter.Add(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
    EXPECT_EQ(counter.count(), 3U) << piece;
    EXPECT_TRUE(counter.between());
    counter.Add(std::span(bytes).first(6));
    EXPECT_FALSE(counter.between());
  }
}

// ---- with OpenSSL's own records at the other end ----

// With our own records from here on, or with OpenSSL's.
class OpenSslTest : public LinkFixture, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Records, OpenSslTest, testing::Bool());

TEST_P(OpenSslTest, UnderstandsUsAndIsUnderstoodAlsoAfterItChangedItsKeys) {
  if (GetParam() && !tls::BulkRecordsPay()) GTEST_SKIP() << "there is no libipsec-mb, or no VAES";
  if (std::system("command -v openssl > /dev/null") != 0) GTEST_SKIP() << "there is no program `openssl`";
  ASSERT_TRUE(EnsureCertificate(*secrets_, {"127.0.0.1"}).ok());
  const Result<std::shared_ptr<TlsContext>> member = secrets_->Member();
  ASSERT_TRUE(member.ok()) << member.status().message();
  const base::Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress any = Resolve(Address{"127.0.0.1", 0}).value().front();
  ASSERT_EQ(bind(listener.get(), any.get(), any.size), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);

  // It sends what it reads, but takes a line that begins with "k" as an order to change its keys, and one with "K" as
  // one to have both ends change theirs.
  int to[2];
  int from[2];
  ASSERT_EQ(pipe2(to, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(from, O_CLOEXEC), 0);
  const std::string folder = secrets_->folder();
  const std::string where = LocalOf(listener.get()).text();
  const std::string crt = folder + "/node.crt";
  const std::string key = folder + "/node.key";
  const std::string authority = folder + "/ca.crt";
  const pid_t child = fork();
  if (child == 0) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 2);
    execlp("openssl", "openssl", "s_client", "-connect", where.c_str(), "-cert", crt.c_str(), "-key", key.c_str(),
           "-CAfile", authority.c_str(), "-tls1_3", nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  const int fd = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
  ASSERT_GE(fd, 0);
  Stream stream(base::Fd(fd), member.value()->Accept(fd));
  for (;;) {
    const TlsSession::Step step = stream.tls()->Handshake();
    if (step == TlsSession::Step::kDone) break;
    ASSERT_NE(step, TlsSession::Step::kFailed) << stream.tls()->failure();
    ASSERT_TRUE(WaitFor(fd, step == TlsSession::Step::kWantsRead ? POLLIN : POLLOUT, base::NowMicros() + 5'000'000));
  }
  const auto say = [&](const std::string& text) {
    ASSERT_EQ(write(to[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  const auto hear = [&](const std::string& text) {
    std::string got(text.size(), '?');
    const Status status = stream.ReadAll(std::as_writable_bytes(std::span(got)), 5'000'000);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(got, text);
  };
  say("before\n");
  hear("before\n");
  if (GetParam()) {
    EXPECT_TRUE(stream.tls()->UseBulkRecords());
  }
  for (const char* order : {"k\n", "K\n", "k\n"}) {
    say(order);
    usleep(200'000);  // it takes an order only by itself
    say("after\n");
    hear("after\n");
  }
  const std::string answer = std::string(100'000, 'x') + "the end";
  ASSERT_TRUE(stream.WriteAll(std::as_bytes(std::span(answer)), 5'000'000).ok());
  stream.Close();  // in order: it ends
  std::string printed;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(from[0], buffer, sizeof buffer)) > 0;) {
    printed.append(buffer, static_cast<std::size_t>(count));
  }
  EXPECT_THAT(printed, testing::HasSubstr(answer));
  close(to[1]);
  close(from[0]);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace manta::wire
