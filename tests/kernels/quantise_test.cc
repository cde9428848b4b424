#include "kernels/quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/data.h"

namespace tensorlightning {
namespace {

using testing::Fill;
using testing::Random;

const std::vector<ValueCode> kCodes = {ValueCode::kFloat32,
                                       ValueCode::kBfloat16, ValueCode::kBits8,
                                       ValueCode::kBits4, ValueCode::kBits2};

// Checks the promises of quantise.h for one value of a chunk.
void CheckValue(ValueCode code, float value, float step) {
  const Quantised quantised = Quantise(code, value, step);
  if (!quantised.kept) return;
  const float sent = Dequantise(code, quantised.symbol, step);
  ASSERT_TRUE(std::isfinite(sent)) << value;
  ASSERT_EQ(std::signbit(sent), std::signbit(value)) << value;
  ASSERT_NE(sent, 0.0f);
  const float left = value - sent;
  // Exact: in double nothing is rounded.
  ASSERT_EQ(static_cast<double>(left),
            static_cast<double>(value) - static_cast<double>(sent))
      << value << " - " << sent;
  ASSERT_EQ(left + sent, value);
  if (code != ValueCode::kFloat32) {
    ASSERT_LT(quantised.symbol, 1u << ValueBits(code));
  }
}

TEST(Quantise, LeavesTheRoundingErrorToTheBit) {
  for (const ValueCode code : kCodes) {
    for (const Fill fill : testing::kAllFills) {
      const std::vector<float> values = testing::Make(fill, 4096, 3);
      float largest = 0;
      for (const float v : values) largest = std::max(largest, std::abs(v));
      const uint32_t scale = HasScale(code) ? ScaleFor(code, largest) : 0;
      if (HasScale(code) && scale == 0) continue;
      for (const float v : values) CheckValue(code, v, FromUpperHalf(scale));
    }
  }
}

TEST(Quantise, LeavesTheRoundingErrorToTheBitForAnyTwoFloats) {
  Random random(11);
  for (int i = 0; i < 2000000; ++i) {
    const auto largest =
        std::bit_cast<float>(static_cast<uint32_t>(random()) & 0x7f7fffffu);
    const float value =
        static_cast<float>(random() % 2000001) * 1e-6f * largest - largest;
    if (!std::isfinite(value) || std::abs(value) > largest) continue;
    for (const ValueCode code : kCodes) {
      const uint32_t scale = HasScale(code) ? ScaleFor(code, largest) : 0;
      if (HasScale(code) && scale == 0) continue;
      CheckValue(code, value, FromUpperHalf(scale));
    }
  }
}

TEST(Quantise, RoundsToTheNearestLevel) {
  const float step = FromUpperHalf(ScaleFor(ValueCode::kBits4, 8.0f));
  EXPECT_EQ(step, 1.0f);
  const auto level = [&](float v) {
    const Quantised q = Quantise(ValueCode::kBits4, v, step);
    return q.kept ? Dequantise(ValueCode::kBits4, q.symbol, step) : 0.0f;
  };
  EXPECT_EQ(level(0.49f), 0.0f);
  EXPECT_EQ(level(0.5f), 0.0f);  // Ties to even.
  EXPECT_EQ(level(0.51f), 1.0f);
  EXPECT_EQ(level(1.5f), 2.0f);
  EXPECT_EQ(level(2.5f), 2.0f);
  EXPECT_EQ(level(-7.6f), -8.0f);
  EXPECT_EQ(level(8.0f), 8.0f);
}

TEST(Quantise, ErrorIsAtMostHalfAStepAndAPartOfTheLargest) {
  for (const ValueCode code :
       {ValueCode::kBits8, ValueCode::kBits4, ValueCode::kBits2}) {
    const std::vector<float> values = testing::Make(Fill::kNormal, 4096, 1);
    float largest = 0;
    for (const float v : values) largest = std::max(largest, std::abs(v));
    const float step = FromUpperHalf(ScaleFor(code, largest));
    for (const float v : values) {
      const Quantised q = Quantise(code, v, step);
      const float sent = q.kept ? Dequantise(code, q.symbol, step) : 0.0f;
      // The step is rounded down to 8 bits, which the largest may notice.
      EXPECT_LE(std::abs(v - sent), step / 2 + largest / 128) << v;
    }
  }
}

TEST(Quantise, Bfloat16SaturatesInsteadOfOverflowing) {
  const float largest = std::numeric_limits<float>::max();
  const Quantised q = Quantise(ValueCode::kBfloat16, -largest, 0);
  EXPECT_TRUE(std::isfinite(Dequantise(ValueCode::kBfloat16, q.symbol, 0)));
}

TEST(Quantise, ScaleNeverLetsTheLargestLevelOverflow) {
  for (const ValueCode code :
       {ValueCode::kBits8, ValueCode::kBits4, ValueCode::kBits2}) {
    const float largest = std::numeric_limits<float>::max();
    const float step = FromUpperHalf(ScaleFor(code, largest));
    EXPECT_TRUE(std::isfinite(step * static_cast<float>(LevelsOf(code))));
  }
}

}  // namespace
}  // namespace tensorlightning
