// The secret: where it may come from, and that its proofs are HMAC-SHA256.
#include "comm/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tensorlightning {
namespace {

const char* const kText = "0123456789abcdef";  // kMinBytes of it.

Mac SignOf(const Secret& secret, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return secret.Sign("label", std::array{bytes});
}

Mac SignWith(std::string_view secret, std::string_view text) {
  const Result<Secret> made = Secret::FromBytes(secret);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return SignOf(*made, text);
}

std::string Hex(const Mac& mac) {
  std::string text;
  for (const std::byte byte : mac) {
    text += "0123456789abcdef"[std::to_integer<size_t>(byte >> 4)];
    text += "0123456789abcdef"[std::to_integer<size_t>(byte & std::byte{15})];
  }
  return text;
}

// A file in the test's own folder, gone afterwards.
class SecretFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "secret-" + std::to_string(getpid());
    unsetenv("TL_SECRET");
    unsetenv("TL_SECRET_FILE");
  }
  void TearDown() override {
    std::filesystem::remove_all(path_);
    unsetenv("TL_SECRET");
    unsetenv("TL_SECRET_FILE");
  }

  void Write(const std::string& content, mode_t mode = 0600) {
    std::ofstream(path_, std::ios::binary) << content;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  // The error of reading it names the path, and says `part`.
  void ExpectRefused(const std::string& part) {
    const Result<Secret> secret = Secret::FromFile(path_);
    ASSERT_FALSE(secret.ok());
    EXPECT_NE(secret.error().message.find(path_), std::string::npos);
    EXPECT_NE(secret.error().message.find(part), std::string::npos)
        << secret.error().message;
  }

  std::string path_;
};

TEST(Secret, SignsWithHmacSha256) {
  // RFC 4231, test case 6: a key longer than SHA-256's block.
  const Result<Secret> secret = Secret::FromBytes(std::string(131, '\xaa'));
  ASSERT_TRUE(secret.ok());
  const std::string_view text = "Larger Than Block-Size Key - Hash Key First";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(Hex(secret->Sign("Test Using ", std::array{bytes})),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Secret, SignsLabelAndPartsAsOneText) {
  const Result<Secret> secret = Secret::FromBytes(kText);
  ASSERT_TRUE(secret.ok());
  const std::string_view text = "abcdef";
  const auto bytes = std::as_bytes(std::span(text));
  const Mac whole = secret->Sign("abcdef", {});
  EXPECT_EQ(secret->Sign("", std::array{bytes}), whole);
  EXPECT_EQ(
      secret->Sign("ab", std::array{bytes.subspan(2, 1), bytes.subspan(3)}),
      whole);
}

TEST(Secret, WithoutOneSignsZeros) {
  EXPECT_TRUE(Secret().empty());
  EXPECT_EQ(SignOf(Secret(), "text"), Mac{});
  EXPECT_NE(SignWith(kText, "text"), Mac{});
}

TEST(Secret, HasALengthBetweenTheLimits) {
  const std::string shorter(Secret::kMinBytes - 1, 's');
  const std::string longest(Secret::kMaxBytes, 's');
  const Result<Secret> refused = Secret::FromBytes(shorter);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message.find(shorter), std::string::npos)
      << "a secret in an error message";
  EXPECT_TRUE(Secret::FromBytes(shorter + "s").ok());
  EXPECT_FALSE(Secret::FromBytes(shorter + " \n").ok());
  EXPECT_TRUE(Secret::FromBytes(longest + "\n").ok());
  EXPECT_FALSE(Secret::FromBytes(longest + "s").ok());
  EXPECT_FALSE(Secret::FromBytes("").ok());
}

TEST(Secret, CopiesAndMovesKeepIt) {
  const Mac expected = SignWith(kText, "x");
  Secret second;
  {
    const Secret first = *Secret::FromBytes(kText);
    second = Secret(first);
  }
  EXPECT_EQ(SignOf(second, "x"), expected);
  Secret third = *Secret::FromBytes("another secret of mine");
  third = second;
  EXPECT_EQ(SignOf(third, "x"), expected);
  const Secret& same = third;
  third = same;
  EXPECT_EQ(SignOf(third, "x"), expected);
  Secret fourth;
  fourth = std::move(third);
  EXPECT_EQ(SignOf(fourth, "x"), expected);
}

TEST_F(SecretFile, IsReadWithoutItsTrailingWhiteSpace) {
  for (const char* end : {"", "\n", "\r\n", " \t\n\n"}) {
    Write(kText + std::string(end));
    const Result<Secret> secret = Secret::FromFile(path_);
    ASSERT_TRUE(secret.ok()) << secret.error().message;
    EXPECT_EQ(SignOf(*secret, "x"), SignWith(kText, "x"));
  }
  // White space elsewhere belongs to it, and so do zeros.
  const std::string odd = std::string("\n a b") + '\0' + "c 0123456789";
  Write(odd);
  EXPECT_EQ(SignOf(*Secret::FromFile(path_), "x"), SignWith(odd, "x"));
}

TEST_F(SecretFile, IsRefusedWhenOthersMayUseIt) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0610, 0601, 0644, 0666}) {
    Write(kText, mode);
    ExpectRefused("chmod 600");
  }
  for (const mode_t mode : {0600, 0400}) {
    Write(kText, 0600);
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    EXPECT_TRUE(Secret::FromFile(path_).ok()) << mode;
  }
}

TEST_F(SecretFile, IsRefusedWhenItIsNone) {
  ExpectRefused("No such file");
  Write("short");
  ExpectRefused("too short");
  Write(std::string(Secret::kMaxBytes + 1, 's'));
  ExpectRefused("at most 4096");
  Write(std::string(3 * Secret::kMaxBytes, 's'));
  ExpectRefused("too large");
  // Its beginning is no secret of its own.
  Write(kText + std::string(3 * Secret::kMaxBytes, ' ') + "more");
  ExpectRefused("too large");
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  ExpectRefused("regular file");
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ExpectRefused("regular file");
}

TEST_F(SecretFile, WinsOverTheEnvironment) {
  EXPECT_TRUE(Secret::FromEnvironment()->empty());
  setenv("TL_SECRET", "a secret in the environment", 1);
  EXPECT_EQ(SignOf(*Secret::FromEnvironment(), "x"),
            SignWith("a secret in the environment", "x"));
  Write(kText);
  setenv("TL_SECRET_FILE", path_.c_str(), 1);
  EXPECT_EQ(SignOf(*Secret::FromEnvironment(), "x"), SignWith(kText, "x"));
  std::filesystem::remove(path_);
  EXPECT_FALSE(Secret::FromEnvironment().ok()) << "fell back on TL_SECRET";
}

TEST_F(SecretFile, SetButEmptyIsAMistakeAndNotNoSecret) {
  setenv("TL_SECRET", "", 1);
  const Result<Secret> no_text = Secret::FromEnvironment();
  ASSERT_FALSE(no_text.ok());
  EXPECT_NE(no_text.error().message.find("TL_SECRET:"), std::string::npos);
  setenv("TL_SECRET_FILE", "", 1);
  const Result<Secret> no_path = Secret::FromEnvironment();
  ASSERT_FALSE(no_path.ok());
  EXPECT_NE(no_path.error().message.find("TL_SECRET_FILE"), std::string::npos);
}

TEST(SameMac, NoticesEveryBit) {
  Mac mac;
  mac.fill(std::byte{0x5a});
  EXPECT_TRUE(SameMac(mac, mac));
  for (size_t bit = 0; bit < 8 * mac.size(); ++bit) {
    Mac other = mac;
    other[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(SameMac(mac, other)) << bit;
  }
}

}  // namespace
}  // namespace tensorlightning
