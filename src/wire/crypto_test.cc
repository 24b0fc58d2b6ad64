#include "wire/crypto.h"

#include <gtest/gtest.h>

#include <string>

namespace manta::wire {
namespace {

std::string HashText(std::string_view text) { return ToHexText(Hash({BytesOf(text)})); }

// FIPS 180-4 examples.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(HashText(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HashText("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HashText("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(HashText(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnThePiecesItIsGiven) {
  const std::string text(300, 'x');
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.Add(std::string_view(text).substr(0, cut));
    hash.Add(std::string_view(text).substr(cut));
    ASSERT_EQ(ToHexText(hash.Finish()), HashText(text)) << cut;
  }
}

// RFC 4231, test cases 1 to 7 (5 is truncated there: its first 16 bytes).
TEST(Hmac, GivesTheDigestsOfRfc4231) {
  const auto mac = [](const std::string& key, std::string_view data) {
    return ToHexText(Hmac(BytesOf(key), {BytesOf(data)}));
  };
  EXPECT_EQ(mac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(mac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(mac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counting;
  for (char c = 1; c <= 25; ++c) counting += c;
  EXPECT_EQ(mac(counting, std::string(50, '\xcd')), "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(mac(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32), "a3b6167473100ee06e0c796c2955552b");
  EXPECT_EQ(mac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(mac(std::string(131, '\xaa'),
                "This is a test using a larger than block-size key and a larger than block-size data. "
                "The key needs to be hashed before being used by the HMAC algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Hmac, OfPartsIsTheOneOfTheWhole) {
  EXPECT_EQ(Hmac(BytesOf("key"), {BytesOf("one"), BytesOf(""), BytesOf("two")}),
            Hmac(BytesOf("key"), {BytesOf("onetwo")}));
}

TEST(SameSecret, TellsEveryDifferentByteAndLength) {
  const auto secret = RandomBytes<32>();
  EXPECT_TRUE(SameSecret(secret, secret));
  for (std::size_t i = 0; i < secret.size(); ++i) {
    auto other = secret;
    other[i] ^= std::byte{1};
    EXPECT_FALSE(SameSecret(secret, other)) << i;
  }
  EXPECT_FALSE(SameSecret(secret, std::span(secret).first(31)));
}

TEST(Hex, ComesBackAsItWentAndRefusesTheRest) {
  const auto bytes = RandomBytes<16>();
  std::array<std::byte, 16> back{};
  EXPECT_TRUE(FromHexText(ToHexText(bytes), back));
  EXPECT_EQ(back, bytes);
  EXPECT_FALSE(FromHexText(std::string(31, '0'), back));
  EXPECT_FALSE(FromHexText(std::string(31, '0') + "g", back));
  EXPECT_FALSE(FromHexText("", back));
}

}  // namespace
}  // namespace manta::wire
