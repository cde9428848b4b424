// Frame headers: every field survives, every flipped bit is noticed.
#include "comm/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include "comm/crc32c.h"

namespace tensorlightning {
namespace {

FrameHeader RandomHeader(std::mt19937_64& random) {
  FrameHeader header{};
  do {
    header.type = static_cast<FrameType>(random() % 64);
  } while (!IsFrameType(static_cast<uint8_t>(header.type)));
  header.shard = static_cast<uint32_t>(random());
  header.payload_bytes = static_cast<uint32_t>(random());
  header.sequence = random();
  header.fingerprint = random();
  return header;
}

// As a peer with other ideas would send it: changed, and signed again.
FrameHeaderBytes With(size_t offset, uint8_t value) {
  FrameHeaderBytes bytes = EncodeHeader({FrameType::kPush, 1, 2, 3, 4});
  bytes[offset] = static_cast<std::byte>(value);
  const uint32_t crc = Crc32c(std::span(bytes).first(32));
  std::memcpy(&bytes[32], &crc, sizeof(crc));
  return bytes;
}

// A header's worth of what another program says.
FrameHeaderBytes Saying(std::string_view text) {
  FrameHeaderBytes bytes{};
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

TEST(FrameHeader, ComesBackFromItsBytes) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 1000; ++round) {
    const FrameHeader header = RandomHeader(random);
    const Result<FrameHeader> parsed = ParseHeader(EncodeHeader(header));
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(*parsed, header);
  }
}

TEST(FrameHeader, RefusesEveryFlippedBitAsCorrupt) {
  const FrameHeaderBytes whole =
      EncodeHeader({FrameType::kReply, 7, 1 << 20, 99, 0x1122334455667788});
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    FrameHeaderBytes bytes = whole;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const Result<FrameHeader> parsed = ParseHeader(bytes);
    ASSERT_FALSE(parsed.ok()) << bit;
    EXPECT_EQ(parsed.error().code, ErrorCode::kCorrupt) << bit;
  }
}

TEST(FrameHeader, NamesBothVersionsWhenTheyDiffer) {
  const Result<FrameHeader> parsed = ParseHeader(With(4, 9));
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(parsed.error().message.find("version 9"), std::string::npos);
  EXPECT_NE(parsed.error().message.find("version 1"), std::string::npos);
}

TEST(FrameHeader, RefusesUnknownTypesAndUsedReserves) {
  for (const auto& bytes :
       {With(5, 0), With(5, 8), With(5, 39), With(6, 1), With(7, 1)}) {
    const Result<FrameHeader> parsed = ParseHeader(bytes);
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.error().code, ErrorCode::kCorrupt);
  }
  EXPECT_TRUE(ParseHeader(With(5, 38)).ok());
}

TEST(FrameHeader, TellsTheUsualStrangersApart) {
  const auto said_of = [](std::string_view text) {
    return ParseHeader(Saying(text)).error().message;
  };
  EXPECT_NE(said_of("\x16\x03\x01").find("TLS"), std::string::npos);
  EXPECT_NE(said_of("GET / HTTP/1.1").find("HTTP"), std::string::npos);
  EXPECT_NE(said_of("SSH-2.0").find("TensorLightning"), std::string::npos);
}

TEST(FrameType, HasANameOfItsOwnExactlyWhenItIsOne) {
  std::set<std::string> names;
  int types = 0;
  for (int type = 0; type < 256; ++type) {
    const std::string name = NameOf(static_cast<FrameType>(type));
    const bool is_one = IsFrameType(static_cast<uint8_t>(type));
    EXPECT_EQ(name != "unknown", is_one) << type;
    types += is_one ? 1 : 0;
    if (is_one) names.insert(name);
  }
  EXPECT_EQ(types, 22);
  EXPECT_EQ(names.size(), 22u);
}

}  // namespace
}  // namespace tensorlightning
