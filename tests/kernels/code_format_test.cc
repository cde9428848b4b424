// The planner: each kind of index is chosen where it is the smallest.
#include "kernels/code_format.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace tensorlightning {
namespace {

// Plans a full group whose positions are those that `keeps` names.
GroupPlan PlanFor(const std::function<bool(uint32_t)>& keeps) {
  std::vector<std::vector<uint32_t>> gaps(kGroupChunks);
  std::vector<ChunkShape> shapes(kGroupChunks);
  for (uint32_t j = 0; j < kGroupChunks; ++j) {
    ChunkShape& shape = shapes[j];
    shape.entries = kChunkEntries;
    uint32_t next = 0;
    uint32_t run = 0;
    for (uint32_t i = 0; i < kChunkEntries; ++i) {
      if (!keeps(j * kChunkEntries + i)) continue;
      const uint32_t gap = i - next;
      gaps[j].push_back(gap);
      if (gap > 0 && run > 0) {
        shape.run_bits += GammaBits(run);
        run = 0;
      }
      shape.runs += run == 0 ? 1 : 0;
      ++run;
      shape.max_gap = std::max(shape.max_gap, gap);
      next = i + 1;
    }
    if (run > 0) shape.run_bits += GammaBits(run);
    shape.count = static_cast<uint32_t>(gaps[j].size());
    shape.tail = kChunkEntries - next;
  }
  GroupPlan plan{};
  PlanGroup(
      shapes.data(), kGroupChunks,
      [&](uint32_t j, uint32_t b) {
        uint32_t sum = 0;
        for (const uint32_t gap : gaps[j]) sum += gap >> b;
        return sum;
      },
      plan);
  return plan;
}

uint8_t KindOfChunk(const GroupPlan& plan, uint32_t chunk) {
  for (uint32_t s = 0; s < plan.size; ++s) {
    const Segment& segment = plan.segments[s];
    if (chunk >= segment.first_chunk &&
        chunk < uint32_t{segment.first_chunk} + segment.chunks) {
      return segment.kind;
    }
  }
  return kIndexKinds;
}

bool Scattered(uint32_t i, uint32_t per_mille) {
  uint64_t hash = (i + 1) * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 29;
  hash *= 0xbf58476d1ce4e5b9u;
  return (hash >> 32) % 1000 < per_mille;
}

TEST(PlanGroup, KeepsOneRiceSegmentForScatteredPositions) {
  const GroupPlan plan = PlanFor([](uint32_t i) { return Scattered(i, 10); });
  ASSERT_EQ(plan.size, 1u);
  EXPECT_EQ(plan.segments[0].kind, kRice + 6);
  EXPECT_EQ(plan.segments[0].chunks, kGroupChunks);
}

TEST(PlanGroup, ChoosesRunsForClusters) {
  const GroupPlan plan = PlanFor([](uint32_t i) { return i % 500 < 8; });
  ASSERT_EQ(plan.size, 1u);
  EXPECT_TRUE(IsRuns(plan.segments[0].kind));
}

TEST(PlanGroup, ChoosesPackedForRegularGaps) {
  const GroupPlan plan = PlanFor([](uint32_t i) { return i % 64 == 5; });
  EXPECT_EQ(KindOfChunk(plan, 0), kPacked);
  EXPECT_EQ(plan.segments[0].width, 6);
}

TEST(PlanGroup, ChoosesBitmapForHalf) {
  const auto keeps = [](uint32_t i) {
    return i / kChunkEntries == 4 ? Scattered(i, 500) : Scattered(i, 10);
  };
  const GroupPlan plan = PlanFor(keeps);
  EXPECT_EQ(KindOfChunk(plan, 4), kBitmap);
  EXPECT_EQ(KindOfChunk(plan, 3), kRice + 6);
  EXPECT_EQ(KindOfChunk(plan, 5), kRice + 6);
  EXPECT_EQ(plan.size, 3u);
}

TEST(PlanGroup, ChoosesAllForFullChunks) {
  const GroupPlan plan = PlanFor(
      [](uint32_t i) { return i / kChunkEntries == 6 || Scattered(i, 10); });
  EXPECT_EQ(KindOfChunk(plan, 6), kAll);
  EXPECT_EQ(plan.size, 3u);
}

TEST(PlanGroup, ChoosesRawForAFewAmongMany) {
  const auto keeps = [](uint32_t i) {
    if (i / kChunkEntries == 9) return i % 4096 == 7 || i % 4096 == 4090;
    return Scattered(i, 300);
  };
  EXPECT_EQ(KindOfChunk(PlanFor(keeps), 9), kRaw);
}

TEST(PlanGroup, PlansNothingForNothing) {
  EXPECT_EQ(PlanFor([](uint32_t) { return false; }).size, 0u);
}

TEST(MaxCodeBytes, GrowsWithBothArguments) {
  EXPECT_GT(MaxCodeBytes(0, 0, ValueCode::kBits2), kCodeHeaderBytes);
  EXPECT_GT(MaxCodeBytes(100, 100, ValueCode::kFloat32),
            MaxCodeBytes(100, 1, ValueCode::kFloat32));
  EXPECT_GT(MaxCodeBytes(1 << 20, 1, ValueCode::kBits4),
            MaxCodeBytes(1 << 10, 1, ValueCode::kBits4));
}

}  // namespace
}  // namespace tensorlightning
