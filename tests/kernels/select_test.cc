#include "kernels/select.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/data.h"

namespace tensorlightning {
namespace {

using testing::Fill;
using testing::Make;
using testing::TopBySorting;

std::vector<uint32_t> Selected(const std::vector<float>& values,
                               const SelectionRule& rule) {
  Workspace workspace;
  const auto selected = Select(values, rule, workspace);
  EXPECT_TRUE(selected.ok());
  return {selected->begin(), selected->end()};
}

class SelectTopK : public ::testing::TestWithParam<Fill> {};

TEST_P(SelectTopK, KeepsExactlyTheLargestOfEveryChunk) {
  for (const size_t n : testing::EdgeSizes()) {
    const std::vector<float> values = Make(GetParam(), n, n);
    for (const double density : {0.0001, 0.01, 0.1, 0.5, 1.0}) {
      std::vector<uint32_t> expected;
      for (size_t begin = 0; begin < n; begin += kChunkEntries) {
        const size_t end = std::min<size_t>(n, begin + kChunkEntries);
        const auto chunk =
            TopBySorting(values, begin, end, KeptOf(density, end - begin));
        expected.insert(expected.end(), chunk.begin(), chunk.end());
      }
      EXPECT_EQ(Selected(values, SelectionRule::ChunkTopK(density)), expected)
          << n << " entries at " << density;
      EXPECT_EQ(SelectionRule::ChunkTopK(density).MaxKept(n), expected.size());
    }
  }
}

TEST_P(SelectTopK, KeepsExactlyTheLargestOfTheWholeVector) {
  std::vector<size_t> sizes = testing::EdgeSizes();
  sizes.push_back(300007);  // Long enough for the sampled short cut.
  for (const size_t n : sizes) {
    const std::vector<float> values = Make(GetParam(), n, n + 1);
    for (const double density : {0.0001, 0.01, 0.3, 1.0}) {
      EXPECT_EQ(Selected(values, SelectionRule::GlobalTopK(density)),
                TopBySorting(values, 0, n, KeptOf(density, n)))
          << n << " entries at " << density;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fills, SelectTopK,
                         ::testing::ValuesIn(testing::kAllFills));

TEST(Select, WorksInAWorkspaceThatOthersHaveUsed) {
  Workspace used;
  for (const size_t n : {size_t{1} << 20, size_t{5000}, size_t{300007}}) {
    const std::vector<float> values = Make(Fill::kNormal, n, n);
    for (const auto& rule :
         {SelectionRule::ChunkTopK(1), SelectionRule::GlobalTopK(0.01),
          SelectionRule::Threshold(2), SelectionRule::SampledThreshold(0.5),
          SelectionRule::GlobalTopK(0.9), SelectionRule::ChunkTopK(0.01)}) {
      const auto selected = Select(values, rule, used);
      ASSERT_TRUE(selected.ok());
      EXPECT_EQ(std::vector<uint32_t>(selected->begin(), selected->end()),
                Selected(values, rule));
    }
  }
}

TEST(Select, CountsWhatADensityMeans) {
  EXPECT_EQ(KeptOf(0.07, 100), 7u);
  EXPECT_EQ(KeptOf(0.55, 100), 55u);
  EXPECT_EQ(KeptOf(0.071, 100), 8u);
  EXPECT_EQ(KeptOf(1e-300, 100), 1u);
  EXPECT_EQ(KeptOf(1, 100), 100u);
  EXPECT_EQ(KeptOf(0.5, 0), 0u);
}

TEST(Select, ThresholdKeepsAllThatReachIt) {
  const std::vector<float> values = {0.5f, -0.5f, 0.49999997f, 0.0f, -2.0f};
  EXPECT_EQ(Selected(values, SelectionRule::Threshold(0.5)),
            (std::vector<uint32_t>{0, 1, 4}));
  EXPECT_EQ(Selected(values, SelectionRule::Threshold(0)).size(), 5u);
  // Between two floats: the lower one is below the threshold.
  EXPECT_EQ(Selected(values, SelectionRule::Threshold(0.499999985)),
            (std::vector<uint32_t>{0, 1, 4}));
}

TEST(Select, SampledThresholdComesNearTheDensity) {
  const std::vector<float> values = Make(Fill::kHeavyTail, 1000003, 5);
  for (const double density : {0.01, 0.1}) {
    const double kept = static_cast<double>(
        Selected(values, SelectionRule::SampledThreshold(density)).size());
    const double wanted = density * 1000003;
    // Four standard deviations of a sample of 65,536.
    EXPECT_NEAR(kept / wanted, 1, 4 / std::sqrt(density * 65536)) << density;
  }
}

TEST(Select, SampledThresholdNeverKeepsZeros) {
  std::vector<float> values(100000, 0.0f);
  values[77] = 1e-30f;
  const auto kept = Selected(values, SelectionRule::SampledThreshold(0.1));
  EXPECT_LE(kept.size(), 1u);
}

TEST(Select, RefusesNotFiniteAndSaysWhere) {
  std::vector<float> values(5000, 1.0f);
  values[4097] = std::numeric_limits<float>::quiet_NaN();
  values[4999] = -std::numeric_limits<float>::infinity();
  Workspace workspace;
  for (const auto& rule :
       {SelectionRule::ChunkTopK(0.1), SelectionRule::GlobalTopK(0.1),
        SelectionRule::Threshold(0.1), SelectionRule::SampledThreshold(0.1)}) {
    const auto selected = Select(values, rule, workspace);
    ASSERT_FALSE(selected.ok());
    EXPECT_EQ(selected.error().code, ErrorCode::kNotFinite);
    EXPECT_EQ(selected.error().message,
              "2 values of the input are NaN or Inf, the first at entry 4097");
  }
}

TEST(Select, RefusesSenselessRules) {
  const std::vector<float> values(10, 1.0f);
  Workspace workspace;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& rule :
       {SelectionRule::ChunkTopK(0), SelectionRule::GlobalTopK(1.01),
        SelectionRule::ChunkTopK(nan), SelectionRule::Threshold(-1),
        SelectionRule::Threshold(nan), SelectionRule::SampledThreshold(-0.1)}) {
    const auto selected = Select(values, rule, workspace);
    ASSERT_FALSE(selected.ok());
    EXPECT_EQ(selected.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tensorlightning
