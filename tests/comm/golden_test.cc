// Frames that another implementation wrote (golden/make.py): ours are the same
// bytes, and theirs are read as what they mean.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <string>

#include "comm/crc32c.h"
#include "comm/frame.h"
#include "comm/handshake.h"
#include "comm/layout.h"
#include "comm/messages.h"
#include "comm/secret.h"
#include "kernels/decode.h"

namespace tensorlightning {
namespace {

std::string Hex(std::span<const std::byte> bytes) {
  const std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += digits[std::to_integer<size_t>(byte >> 4)];
    text += digits[std::to_integer<size_t>(byte & std::byte{15})];
  }
  return text;
}

struct Frame {
  FrameHeader header;
  Bytes payload;
};

std::string GoldenHex(const std::string& name) {
  std::ifstream file("tests/comm/golden/" + name + ".hex");
  EXPECT_TRUE(file.good()) << name;
  std::string all;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with('#')) all += line;
  }
  return all;
}

// The frame in golden/<name>.hex, its checksums and length checked.
Frame Golden(FrameType type) {
  const std::string hex = GoldenHex(NameOf(type));
  Bytes bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(
        static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  EXPECT_GE(bytes.size(), kFrameHeaderBytes + kFrameTrailerBytes);
  bytes.resize(std::max(bytes.size(), kFrameHeaderBytes + kFrameTrailerBytes));
  const std::span<const std::byte> all(bytes);
  const auto header = ParseHeader(all.first<kFrameHeaderBytes>());
  EXPECT_TRUE(header.ok()) << header.error().message;
  const auto payload = all.subspan(
      kFrameHeaderBytes, all.size() - kFrameHeaderBytes - kFrameTrailerBytes);
  uint32_t crc = 0;
  std::memcpy(&crc, all.last<kFrameTrailerBytes>().data(), sizeof(crc));
  EXPECT_EQ(crc, Crc32c(payload));
  EXPECT_EQ(header->payload_bytes, payload.size());
  EXPECT_EQ(header->type, type);
  return {*header, {payload.begin(), payload.end()}};
}

// A whole frame as we write it.
std::string Written(FrameHeader header, std::span<const std::byte> payload) {
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  const uint32_t crc = Crc32c(payload);
  return Hex(EncodeHeader(header)) + Hex(payload) +
         Hex(std::as_bytes(std::span(&crc, 1)));
}

// Both ways: what we write of these values is the golden frame, and its header
// is read as `header`. The golden payload, to be parsed.
Bytes Expect(FrameHeader header, std::span<const std::byte> payload) {
  EXPECT_EQ(Written(header, payload), GoldenHex(NameOf(header.type)));
  Frame golden = Golden(header.type);
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  EXPECT_EQ(golden.header, header);
  return golden.payload;
}

Layout SomeLayout() {
  Result<Layout> layout =
      Layout::Make({{"dense/kernel", {784, 128}, DType::kFloat32},
                    {"dense/bias", {128}, DType::kBfloat16},
                    {"échelle", {}, DType::kFloat64}});
  EXPECT_TRUE(layout.ok()) << layout.error().message;
  return *layout;
}

// Of shard 2 of that layout.
FrameHeader OfShard(FrameType type, uint64_t sequence = 0) {
  return {type, 2, 0, sequence, SomeLayout().short_fingerprint()};
}
FrameHeader OfAll(FrameType type) {
  return {type, 0, 0, 0, SomeLayout().short_fingerprint()};
}
FrameHeader Plain(FrameType type) { return {type}; }

Nonce CountingFrom(int first) {
  Nonce nonce;
  for (size_t i = 0; i < nonce.size(); ++i) {
    nonce[i] = static_cast<std::byte>(first + static_cast<int>(i));
  }
  return nonce;
}

Hello SomeHello() {
  Hello hello;
  hello.nonce = CountingFrom(0);
  hello.fingerprint = SomeLayout().fingerprint();
  hello.attempt = 7;
  hello.rank = kAnyRank;
  hello.job = "mnist";
  hello.name = "host:4711";
  return hello;
}

Challenge SomeChallenge() { return {CountingFrom(128), true}; }

Secret SomeSecret() {
  Result<Secret> secret = Secret::FromBytes("correct horse battery staple");
  EXPECT_TRUE(secret.ok()) << secret.error().message;
  return *secret;
}

Bytes SomeFloats() {
  const std::array<float, 6> floats = {0.0f,   1.5f,     -2.25f,
                                       3e-39f, 65504.0f, -0.0f};
  const auto bytes = std::as_bytes(std::span(floats));
  return {bytes.begin(), bytes.end()};
}

Bytes Joint(std::span<const std::byte> a, std::span<const std::byte> b) {
  Bytes both(a.size() + b.size());
  std::ranges::copy(b, std::ranges::copy(a, both.begin()).out);
  return both;
}

std::vector<float> Decoded(std::span<const std::byte> code, size_t entries) {
  std::vector<float> values(entries);
  const Result<Message> message = Message::Parse(code, entries);
  EXPECT_TRUE(message.ok()) << message.error().message;
  if (message.ok()) DecodeAdd(*message, values, 1.0f);
  return values;
}

TEST(Golden, ThereIsAFrameOfEveryType) {
  for (int type = 0; type < 256; ++type) {
    if (!IsFrameType(static_cast<uint8_t>(type))) continue;
    const Frame frame = Golden(static_cast<FrameType>(type));
    EXPECT_EQ(Written(frame.header, frame.payload),
              GoldenHex(NameOf(frame.header.type)));
  }
}

TEST(Golden, Hello) {
  const Bytes golden = Expect(Plain(FrameType::kHello), SomeHello().Encode());
  EXPECT_EQ(*Hello::Parse(golden), SomeHello());
}

TEST(Golden, Challenge) {
  const Bytes golden =
      Expect(Plain(FrameType::kChallenge), SomeChallenge().Encode());
  EXPECT_EQ(*Challenge::Parse(golden), SomeChallenge());
}

TEST(Golden, HandshakeGoesThrough) {
  const Secret secret = SomeSecret();
  AggregatorHandshake aggregator(secret, CountingFrom(128));
  WorkerHandshake worker(secret, SomeHello());
  const auto challenge =
      aggregator.Take(FrameType::kHello, Golden(FrameType::kHello).payload);
  ASSERT_TRUE(challenge.ok()) << challenge.error().message;
  const auto proof =
      worker.Take(FrameType::kChallenge, Golden(FrameType::kChallenge).payload);
  ASSERT_TRUE(proof.ok()) << proof.error().message;
  const Bytes golden_proof = Expect(Plain(FrameType::kProof), **proof);
  const auto welcome = aggregator.Take(FrameType::kProof, golden_proof);
  ASSERT_TRUE(welcome.ok()) << welcome.error().message;
  const Bytes golden_welcome =
      Expect(Plain(FrameType::kWelcome), welcome->payload);
  EXPECT_TRUE(worker.Take(FrameType::kWelcome, golden_welcome).ok());
  EXPECT_TRUE(worker.done() && aggregator.done());
}

TEST(Golden, Join) {
  Join join;
  join.rule = Rule::kGradientAsync;
  join.reply = {SelectionRule::ChunkTopK(0.01), ValueCode::kBits4};
  join.incarnation = 0x0123456789abcdef;
  join.layout = SomeLayout().Serialise();
  const Result<Join> golden =
      Join::Parse(Expect(Plain(FrameType::kJoin), join.Encode()));
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  EXPECT_EQ(golden->rule, join.rule);
  EXPECT_EQ(golden->reply.rule.kind, SelectionRule::Kind::kChunkTopK);
  EXPECT_EQ(golden->reply.rule.amount, 0.01);
  EXPECT_EQ(golden->reply.values, ValueCode::kBits4);
  EXPECT_EQ(golden->incarnation, join.incarnation);
  const Result<Layout> layout = Layout::Parse(golden->layout);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_EQ(DescribeDifference(*layout, SomeLayout()), "");
}

TEST(Golden, Joined) {
  const Joined joined{3, 4, 0xfedcba9876543210, 10000, 2, 5, true};
  const Bytes golden = Expect(OfAll(FrameType::kJoined), joined.Encode());
  EXPECT_EQ(*Joined::Parse(golden), joined);
}

TEST(Golden, Error) {
  const Complaint complaint{WireError::kFenced, "attempt 8 has taken over"};
  const Bytes golden = Expect(Plain(FrameType::kError), complaint.Encode());
  EXPECT_EQ(*Complaint::Parse(golden), complaint);
}

TEST(Golden, Init) { Expect(OfShard(FrameType::kInit), SomeFloats()); }

TEST(Golden, State) {
  const Standing standing{4, 40, 160};
  const Bytes golden = Expect(OfShard(FrameType::kState, 41),
                              Joint(standing.Encode(), SomeFloats()));
  EXPECT_EQ(*Standing::Parse(golden), standing);
}

TEST(Golden, Push) {
  const Frame golden = Golden(FrameType::kPush);
  Expect(OfShard(FrameType::kPush, 42), golden.payload);
  EXPECT_EQ(Decoded(golden.payload, 6),
            (std::vector<float>{0, 0.5f, 0, 0, -2.0f, 0}));
}

TEST(Golden, Reply) {
  const Standing standing{4, 41, 161};
  const Frame golden = Golden(FrameType::kReply);
  const auto code = std::span(golden.payload).subspan(Standing::kBytes);
  Expect(OfShard(FrameType::kReply, 42), Joint(standing.Encode(), code));
  EXPECT_EQ(*Standing::Parse(golden.payload), standing);
  EXPECT_EQ(Decoded(code, 6),
            (std::vector<float>{1.0f, -1.0f, 0.5f, -0.5f, 2.0f, -2.0f}));
}

TEST(Golden, Refused) {
  const Complaint complaint{WireError::kNotFinite, "a value is NaN"};
  const Bytes golden =
      Expect(OfShard(FrameType::kRefused, 42), complaint.Encode());
  EXPECT_EQ(*Complaint::Parse(golden), complaint);
}

TEST(Golden, Pong) {
  const Standing standing{4, 0, 0};
  const Bytes golden = Expect(OfAll(FrameType::kPong), standing.Encode());
  EXPECT_EQ(*Standing::Parse(golden), standing);
}

TEST(Golden, DigestIs) {
  const auto crc_of = [](std::string_view text) {
    return Crc32c(std::as_bytes(std::span(text)));
  };
  const Digest digest{crc_of("view"), crc_of("centre"), 161};
  const Bytes golden = Expect(OfShard(FrameType::kDigestIs), digest.Encode());
  EXPECT_EQ(*Digest::Parse(golden), digest);
}

TEST(Golden, StatusIs) {
  const std::string_view json = R"({"job":"mnist","live":4})";
  Expect(OfAll(FrameType::kStatusIs), std::as_bytes(std::span(json)));
}

TEST(Golden, FramesWithoutPayload) {
  Expect(OfShard(FrameType::kPull), {});
  Expect(OfShard(FrameType::kNoCentre), {});
  Expect(OfShard(FrameType::kResync, 42), {});
  Expect(OfAll(FrameType::kPing), {});
  Expect(OfAll(FrameType::kLeave), {});
  Expect(OfShard(FrameType::kDigest), {});
  Expect(OfAll(FrameType::kStatus), {});
}

}  // namespace
}  // namespace tensorlightning
