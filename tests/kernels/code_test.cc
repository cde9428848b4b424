// Encoding and decoding: exactness, size against the entropy, and what happens
// to bytes that no encoder wrote.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "kernels/decode.h"
#include "kernels/encode.h"
#include "kernels/exchange.h"
#include "tests/kernels/data.h"

namespace tensorlightning {
namespace {

using testing::Fill;
using testing::Make;
using testing::Random;

using Bytes = std::vector<std::byte>;

Bytes Encode(std::vector<float> values, const Compression& compression) {
  Workspace workspace;
  Bytes out(compression.MaxBytes(values.size()));
  const auto emitted = Compress(values, {}, compression, workspace, out);
  EXPECT_TRUE(emitted.ok()) << emitted.error().message;
  out.resize(emitted->bytes);
  return out;
}

Bytes EncodeAll(const std::vector<float>& values,
                ValueCode code = ValueCode::kFloat32) {
  return Encode(values, {SelectionRule::Threshold(0), code});
}

// Positions -> code with 2-bit values, through the whole pipeline.
Bytes EncodePositions(size_t n, const std::vector<uint32_t>& positions) {
  std::vector<float> values(n);
  for (const uint32_t p : positions) values[p] = 1.0f;
  return EncodeAll(values, ValueCode::kBits2);
}

std::vector<float> Decode(const Bytes& bytes, size_t n) {
  std::vector<float> values(n);
  const auto message = Message::Parse(bytes, n);
  EXPECT_TRUE(message.ok()) << message.error().message;
  if (message.ok()) DecodeAdd(*message, values, 1.0f);
  return values;
}

TEST(Code, Float32IsLossless) {
  for (const Fill fill : testing::kAllFills) {
    for (const size_t n : testing::EdgeSizes()) {
      const std::vector<float> values = Make(fill, n, n);
      // Zeros of either sign come back as zero: compared by value.
      EXPECT_EQ(Decode(EncodeAll(values), n), values) << n;
    }
  }
}

TEST(Code, SparseFloat32IsLosslessForWhatWasSelected) {
  for (const size_t n : testing::EdgeSizes()) {
    for (const double density : {0.001, 0.01, 0.1, 0.6}) {
      const std::vector<float> values = Make(Fill::kNormal, n, 2);
      const Compression compression{SelectionRule::GlobalTopK(density),
                                    ValueCode::kFloat32};
      std::vector<float> expected(n);
      for (const uint32_t i :
           testing::TopBySorting(values, 0, n, KeptOf(density, n))) {
        expected[i] = values[i];
      }
      EXPECT_EQ(Decode(Encode(values, compression), n), expected);
    }
  }
}

// Shapes of position sets, to bring every index kind into use.
struct Shape {
  const char* name;
  std::function<bool(uint32_t, Random&)> keeps;
};
const std::vector<Shape> kShapes = {
    {"none", [](uint32_t, Random&) { return false; }},
    {"all", [](uint32_t, Random&) { return true; }},
    {"first", [](uint32_t i, Random&) { return i == 0; }},
    {"one per chunk", [](uint32_t i, Random&) { return i % 4096 == 4095; }},
    {"one per group", [](uint32_t i, Random&) { return i % 65536 == 65535; }},
    {"every 64th", [](uint32_t i, Random&) { return i % 64 == 5; }},
    {"every other", [](uint32_t i, Random&) { return i % 2 == 1; }},
    {"half", [](uint32_t, Random& r) { return r() % 2 == 0; }},
    {"all but one", [](uint32_t i, Random&) { return i % 4096 != 77; }},
    {"long runs", [](uint32_t i, Random&) { return i / 1000 % 7 == 3; }},
    {"short runs", [](uint32_t i, Random&) { return i % 500 < 8; }},
    {"whole chunks", [](uint32_t i, Random&) { return i / 4096 % 5 == 1; }},
    {"dense chunk among sparse",
     [](uint32_t i, Random& r) {
       return i / 4096 % 16 == 6 || r() % 1000 == 0;
     }},
    {"half a chunk among empty",
     [](uint32_t i, Random& r) { return i / 4096 % 16 == 9 && r() % 2 == 0; }},
    {"head of a dense chunk, then nothing",
     [](uint32_t i, Random&) { return i % 65536 < 900; }},
};

std::vector<uint32_t> PositionsOf(const Shape& shape, size_t n) {
  Random random(n);
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < n; ++i) {
    if (shape.keeps(i, random)) positions.push_back(i);
  }
  return positions;
}

TEST(Code, KeepsPositionsOfEveryShape) {
  for (const Shape& shape : kShapes) {
    for (const size_t n : testing::EdgeSizes()) {
      const std::vector<uint32_t> positions = PositionsOf(shape, n);
      const Bytes bytes = EncodePositions(n, positions);
      const auto message = Message::Parse(bytes, n);
      ASSERT_TRUE(message.ok())
          << shape.name << ": " << message.error().message;
      std::vector<uint32_t> indices(message->kept());
      std::vector<float> values(message->kept());
      DecodeEntries(*message, indices, values);
      EXPECT_EQ(indices, positions) << shape.name << " of " << n;
      EXPECT_EQ(values, std::vector<float>(positions.size(), 1.0f));
    }
  }
}

TEST(Code, FitsIntoWhatMaxCodeBytesPromises) {
  // Compress() demands that much room; here it is given not a byte less, and
  // the bytes behind are watched.
  for (const Shape& shape : kShapes) {
    for (const size_t n : testing::EdgeSizes()) {
      const std::vector<uint32_t> positions = PositionsOf(shape, n);
      for (const ValueCode code : {ValueCode::kFloat32, ValueCode::kBits2}) {
        std::vector<float> values(n);
        for (const uint32_t p : positions) values[p] = -3.0f;
        const size_t room = MaxCodeBytes(n, positions.size(), code);
        const Compression compression{
            n == 0 ? SelectionRule::Threshold(0)
                   : SelectionRule::GlobalTopK(
                         std::max(1e-12, static_cast<double>(positions.size()) /
                                             static_cast<double>(n))),
            code};
        Bytes out(compression.MaxBytes(n) + 64, std::byte{0xa5});
        Workspace workspace;
        const auto emitted =
            Compress(values, {}, compression, workspace,
                     std::span(out).first(compression.MaxBytes(n)));
        ASSERT_TRUE(emitted.ok());
        EXPECT_LE(emitted->bytes, room) << shape.name << " of " << n;
        for (size_t i = compression.MaxBytes(n); i < out.size(); ++i) {
          ASSERT_EQ(out[i], std::byte{0xa5});
        }
      }
    }
  }
}

// ---- Size. ------------------------------------------------------------------

double EntropyBitsPerEntry(double p) {
  return -(p * std::log2(p) + (1 - p) * std::log2(1 - p)) / p;
}

// Everything but the two bits of each value and the scale of each chunk that
// has one is the cost of saying where.
double IndexBitsPerEntry(size_t n, const std::vector<uint32_t>& positions) {
  const Bytes bytes = EncodePositions(n, positions);
  size_t chunks = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    chunks += i == 0 || positions[i] / 4096 != positions[i - 1] / 4096;
  }
  const double bits = 8.0 * static_cast<double>(bytes.size()) -
                      2.0 * static_cast<double>(positions.size()) -
                      16.0 * static_cast<double>(chunks);
  return bits / static_cast<double>(positions.size());
}

constexpr size_t kMany = size_t{1} << 21;

class IndexCost : public ::testing::TestWithParam<double> {};

TEST_P(IndexCost, IsWithinTenPercentOfEntropyOnUniformPositions) {
  Random random(1);
  std::bernoulli_distribution keep(GetParam());
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < kMany; ++i) {
    if (keep(random)) positions.push_back(i);
  }
  const double bound = EntropyBitsPerEntry(
      static_cast<double>(positions.size()) / static_cast<double>(kMany));
  const double cost = IndexBitsPerEntry(kMany, positions);
  RecordProperty("bits_per_entry", std::to_string(cost));
  RecordProperty("entropy_bound", std::to_string(bound));
  std::cout << "uniform " << GetParam() << ": " << cost << " bits, bound "
            << bound << ", ratio " << cost / bound << "\n";
  EXPECT_LE(cost, 1.10 * bound);
}

TEST_P(IndexCost, IsWithinTenPercentOfEntropyOnTopKPositions) {
  const std::vector<float> values = Make(Fill::kNormal, kMany, 9);
  Workspace workspace;
  const auto kept =
      Select(values, SelectionRule::ChunkTopK(GetParam()), workspace);
  const std::vector<uint32_t> positions(kept->begin(), kept->end());
  const double bound = EntropyBitsPerEntry(
      static_cast<double>(positions.size()) / static_cast<double>(kMany));
  EXPECT_LE(IndexBitsPerEntry(kMany, positions), 1.10 * bound);
}

// Clusters as real gradients have them: stretches in which entries are kept
// with `inside` probability, of `length` on average, and nothing between.
std::vector<uint32_t> Clustered(double density, double inside, double length) {
  Random random(2);
  const double enter = density / inside / length / (1 - density / inside);
  std::bernoulli_distribution enters(enter);
  std::bernoulli_distribution leaves(1 / length);
  std::bernoulli_distribution keep(inside);
  std::vector<uint32_t> positions;
  bool in = false;
  for (uint32_t i = 0; i < kMany; ++i) {
    in = in ? !leaves(random) : enters(random);
    if (in && keep(random)) positions.push_back(i);
  }
  return positions;
}

TEST_P(IndexCost, IsWithinTenPercentOfEntropyOnClusteredPositions) {
  for (const double inside : {0.3, 0.6, 0.95}) {
    for (const double length : {4.0, 30.0, 300.0, 5000.0}) {
      const auto positions = Clustered(GetParam(), inside, length);
      const double bound = EntropyBitsPerEntry(
          static_cast<double>(positions.size()) / static_cast<double>(kMany));
      const double cost = IndexBitsPerEntry(kMany, positions);
      std::cout << "clustered " << GetParam() << " inside " << inside
                << " length " << length << ": " << cost << " bits, bound "
                << bound << ", ratio " << cost / bound << "\n";
      EXPECT_LE(cost, 1.10 * bound)
          << "inside " << inside << ", length " << length;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Densities, IndexCost,
                         ::testing::Values(0.001, 0.01, 0.03, 0.1));

TEST(Code, TakesLessThanEveryFixedChoice) {
  // Each regular shape has an index that suits it, and gets it.
  const size_t n = kMany;
  EXPECT_LT(IndexBitsPerEntry(n, PositionsOf(kShapes[1], n)), 0.01);  // all
  EXPECT_LT(IndexBitsPerEntry(n, PositionsOf(kShapes[5], n)), 6.6);   // packed
  EXPECT_LT(IndexBitsPerEntry(n, PositionsOf(kShapes[7], n)), 2.02);  // bitmap
  EXPECT_LT(IndexBitsPerEntry(n, PositionsOf(kShapes[10], n)), 2.5);  // runs
}

// ---- Bytes from elsewhere. --------------------------------------------------

TEST(Message, RefusesEveryTruncation) {
  const size_t n = 9000;
  const Bytes bytes =
      Encode(Make(Fill::kNormal, n, 1),
             {SelectionRule::ChunkTopK(0.02), ValueCode::kBits4});
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto message = Message::Parse(std::span(bytes).first(length), n);
    ASSERT_FALSE(message.ok()) << length;
    EXPECT_EQ(message.error().code, ErrorCode::kCorrupt);
  }
}

TEST(Message, SurvivesEveryFlippedBitAndRandomDamage) {
  for (const ValueCode code :
       {ValueCode::kFloat32, ValueCode::kBfloat16, ValueCode::kBits2}) {
    for (const Shape& shape : kShapes) {
      const size_t n = 66000;
      std::vector<float> values(n);
      for (const uint32_t p : PositionsOf(shape, n)) values[p] = 1.5f;
      const Bytes bytes = EncodeAll(values, code);
      Random random(4);
      std::vector<float> y(n);
      std::vector<uint32_t> indices(n);
      std::vector<float> decoded(n);
      for (int round = 0; round < 300; ++round) {
        Bytes damaged = bytes;
        for (uint64_t i = 0; i <= random() % 3; ++i) {
          damaged[random() % damaged.size()] ^=
              static_cast<std::byte>(1u << random() % 8);
        }
        const auto message = Message::Parse(damaged, n);
        if (!message.ok()) continue;
        // What parses can be applied; the sanitizers watch.
        ASSERT_LE(message->kept(), n);
        DecodeAdd(*message, y, 0.5f);
        DecodeEntries(*message, indices, decoded);
        for (size_t i = 1; i < message->kept(); ++i) {
          ASSERT_LT(indices[i - 1], indices[i]);
        }
      }
    }
  }
}

TEST(Message, RefusesTheWrongSizeByName) {
  const Bytes bytes = EncodeAll({1, 2, 3});
  const auto message = Message::Parse(bytes, 4);
  ASSERT_FALSE(message.ok());
  EXPECT_EQ(message.error().message,
            "not a valid sparse code: it is for 3 entries, not 4");
}

TEST(Message, RefusesTrailingBytesAndUnknownVersions) {
  Bytes bytes = EncodeAll({1, 2, 3});
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(Message::Parse(bytes, 3).ok());
  bytes.pop_back();
  EXPECT_TRUE(Message::Parse(bytes, 3).ok());
  bytes[3] = std::byte{'2'};
  EXPECT_FALSE(Message::Parse(bytes, 3).ok());
}

TEST(Message, RefusesValuesThatAreNotFinite) {
  std::vector<float> values(70000, 1.0f);
  Bytes bytes = EncodeAll(values);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // The first group: header, 3 bytes of length, 3 of count, then values.
  std::memcpy(&bytes[kCodeHeaderBytes + 6 + 4 * 123], &nan, sizeof(nan));
  const auto message = Message::Parse(bytes, values.size());
  ASSERT_FALSE(message.ok());
  EXPECT_EQ(message.error().code, ErrorCode::kNotFinite);
  EXPECT_EQ(message.error().message,
            "1 value of the code is NaN or Inf, at entry 123");
}

TEST(Message, RefusesScalesThatWouldOverflow) {
  Bytes bytes = EncodeAll({4.0f, 4.0f, 4.0f}, ValueCode::kBits8);
  // Header, length, count, mask (2), then the scale.
  const uint16_t huge = 0x7f7f;
  std::memcpy(&bytes[kCodeHeaderBytes + 4], &huge, sizeof(huge));
  const auto message = Message::Parse(bytes, 3);
  ASSERT_FALSE(message.ok());
  EXPECT_EQ(message.error().code, ErrorCode::kNotFinite);
}

TEST(Message, RefusesMasksAndScalesThatDontFitThePositions) {
  const Bytes good = EncodeAll({4.0f, 4.0f, 4.0f}, ValueCode::kBits8);
  ASSERT_TRUE(Message::Parse(good, 3).ok());
  // Header, length, count, mask (2), scale (2).
  const size_t mask = kCodeHeaderBytes + 2;
  Bytes bytes = good;
  bytes[mask] = std::byte{2};  // A scale for a chunk without entries.
  EXPECT_FALSE(Message::Parse(bytes, 3).ok());
  for (const uint16_t scale : {uint16_t{0}, uint16_t{0xbf80}}) {  // 0 and -1.
    bytes = good;
    std::memcpy(&bytes[mask + 2], &scale, sizeof(scale));
    EXPECT_FALSE(Message::Parse(bytes, 3).ok()) << scale;
  }
}

TEST(Decode, AddsWithAScale) {
  const std::vector<float> values = {0, 2, 0, -4};
  std::vector<float> y = {1, 1, 1, 1};
  const Bytes bytes = EncodeAll(values);
  DecodeAdd(*Message::Parse(bytes, 4), y, 0.5f);
  EXPECT_EQ(y, (std::vector<float>{1, 2, 1, -1}));
}

}  // namespace
}  // namespace tensorlightning
