// Shards, over random layouts: nothing is lost, doubled or out of balance.
#include "comm/shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace tensorlightning {
namespace {

using Random = std::mt19937_64;

Layout LayoutOf(const std::vector<uint64_t>& sizes) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < sizes.size(); ++i) {
    tensors.push_back({"t" + std::to_string(i), {sizes[i]}});
  }
  Result<Layout> layout = Layout::Make(std::move(tensors));
  EXPECT_TRUE(layout.ok()) << layout.error().message;
  return *layout;
}

// Sizes at and around what matters: small, one shard, several.
std::vector<uint64_t> RandomSizes(Random& random) {
  const std::vector<uint64_t> edges = {1,
                                       kSmallTensorEntries - 1,
                                       kSmallTensorEntries,
                                       kSmallTensorEntries + 1,
                                       kShardEntries - 1,
                                       kShardEntries,
                                       kShardEntries + 1};
  std::vector<uint64_t> sizes(1 + random() % 12);
  for (uint64_t& size : sizes) {
    switch (random() % 4) {
      case 0:
        size = edges[random() % edges.size()];
        break;
      case 1:
        size = 1 + random() % (3 * kShardEntries);
        break;
      default:
        size = 1 + random() % (2 * kSmallTensorEntries);
    }
  }
  return sizes;
}

// Tensors of a layout, each entry of which is a number of its own.
struct Model {
  explicit Model(const Layout& layout) {
    float next = 1.0f;
    for (const Tensor& tensor : layout.tensors()) {
      values.emplace_back(tensor.entries());
      for (float& value : values.back()) value = next++;
    }
    for (std::vector<float>& tensor : values) spans.emplace_back(tensor);
  }

  std::vector<std::vector<float>> values;
  std::vector<std::span<float>> spans;
};

size_t EntriesOf(const ShardMap& map, ShardRange range) {
  size_t entries = 0;
  for (uint32_t s = range.begin; s < range.end; ++s) {
    entries += map.shards()[s].entries;
  }
  return entries;
}

TEST(ShardMap, PutsSmallTensorsAtTheEndInShardsOfTheirOwn) {
  // 1024 is small, 1025 is not.
  const Layout layout = LayoutOf({1024, kShardEntries, 3, 1025});
  const ShardMap map(layout);
  const size_t sparse = kShardEntries + 1025;
  EXPECT_EQ(std::vector(map.shards().begin(), map.shards().end()),
            (std::vector<Shard>{{0, kShardEntries, false},
                                {kShardEntries, 1025, false},
                                {sparse, 1027, true}}));
  Model model(layout);
  std::vector<float> wire(map.entries());
  map.Gather(model.spans, wire);
  EXPECT_EQ(wire[0], model.values[1][0]);
  EXPECT_EQ(wire[kShardEntries], model.values[3][0]);
  EXPECT_EQ(wire[sparse], model.values[0][0]);
  EXPECT_EQ(wire[sparse + 1024], model.values[2][0]);
}

TEST(ShardMap, CutsManySmallTensorsToo) {
  const ShardMap map(LayoutOf(std::vector<uint64_t>(400, 1024)));
  ASSERT_EQ(map.shards().size(), 2u);
  EXPECT_EQ(map.shards()[0], (Shard{0, kShardEntries, true}));
  EXPECT_EQ(map.shards()[1],
            (Shard{kShardEntries, 400 * 1024 - kShardEntries, true}));
}

TEST(ShardMap, EveryEntryBelongsToExactlyOneShardOfItsKind) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    const std::vector<uint64_t> sizes = RandomSizes(random);
    const ShardMap map(LayoutOf(sizes));
    size_t next = 0;
    size_t dense = 0;
    bool was_dense = false;
    for (const Shard& shard : map.shards()) {
      EXPECT_EQ(shard.begin, next);
      EXPECT_GT(shard.entries, 0u);
      EXPECT_LE(shard.entries, kShardEntries);
      EXPECT_TRUE(shard.dense || !was_dense) << "sparse after dense";
      was_dense = shard.dense;
      if (shard.dense) dense += shard.entries;
      next += shard.entries;
    }
    EXPECT_EQ(next, map.entries());
    EXPECT_EQ(next, std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}));
    size_t small = 0;
    for (const uint64_t size : sizes) {
      if (size <= kSmallTensorEntries) small += size;
    }
    EXPECT_EQ(dense, small);
  }
}

TEST(ShardMap, ScatterUndoesGatherAndGatherIsAPermutation) {
  Random random(2);
  for (int round = 0; round < 20; ++round) {
    const Layout layout = LayoutOf(RandomSizes(random));
    const ShardMap map(layout);
    Model model(layout);
    std::vector<float> wire(map.entries());
    map.Gather(model.spans, wire);

    Model other(layout);
    for (std::vector<float>& tensor : other.values) {
      std::fill(tensor.begin(), tensor.end(), -1.0f);
    }
    map.Scatter(wire, other.spans);
    EXPECT_EQ(other.values, model.values);

    // All of 1, 2, ... are there, if in another order.
    std::sort(wire.begin(), wire.end());
    for (size_t i = 0; i < wire.size(); ++i) {
      ASSERT_EQ(wire[i], static_cast<float>(i + 1));
    }
  }
}

TEST(ShardMap, ScatterAddAdds) {
  Random random(3);
  const Layout layout = LayoutOf(RandomSizes(random));
  const ShardMap map(layout);
  Model model(layout);
  const Model before(layout);
  std::vector<float> wire(map.entries());
  map.Gather(model.spans, wire);
  map.ScatterAdd(wire, model.spans);
  for (size_t t = 0; t < model.values.size(); ++t) {
    for (size_t i = 0; i < model.values[t].size(); ++i) {
      ASSERT_EQ(model.values[t][i], 2 * before.values[t][i]);
    }
  }
}

TEST(ShardMap, PartsCoverAllShardsOnceAndAreEqualWithinOneShard) {
  Random random(4);
  for (int round = 0; round < 300; ++round) {
    const ShardMap map(LayoutOf(RandomSizes(random)));
    const auto shards = static_cast<uint32_t>(map.shards().size());
    for (uint32_t parts = 1; parts <= shards; ++parts) {
      uint32_t next = 0;
      const size_t share = map.entries() / parts;
      for (uint32_t part = 0; part < parts; ++part) {
        const Result<ShardRange> range = map.Part(part, parts);
        ASSERT_TRUE(range.ok()) << range.error().message;
        EXPECT_EQ(range->begin, next);
        EXPECT_GT(range->size(), 0u);
        next = range->end;
        const size_t entries = EntriesOf(map, *range);
        EXPECT_LE(entries, share + kShardEntries) << parts << " of " << shards;
        EXPECT_GE(entries + kShardEntries, share) << parts << " of " << shards;
      }
      EXPECT_EQ(next, shards);
    }
  }
}

TEST(ShardMap, RefusesPartsThatCannotBe) {
  const ShardMap map(LayoutOf({kShardEntries + 1}));
  ASSERT_EQ(map.shards().size(), 2u);
  EXPECT_FALSE(map.Part(0, 0).ok());
  EXPECT_FALSE(map.Part(2, 2).ok());
  const Result<ShardRange> too_many = map.Part(0, 3);
  ASSERT_FALSE(too_many.ok());
  EXPECT_NE(too_many.error().message.find("2 shards"), std::string::npos);
  EXPECT_NE(too_many.error().message.find("3 aggregators"), std::string::npos);
}

TEST(ShardMap, NamesTheTensorWhoseSizeIsWrong) {
  const Layout layout = LayoutOf({5, 6, 7});
  const ShardMap map(layout);
  Model model(layout);
  EXPECT_TRUE(map.CheckSizes(model.spans).ok());
  model.spans[1] = model.spans[1].first(5);
  const Status wrong = map.CheckSizes(model.spans);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(wrong.error().message.find("tensor 1 't1' has 5 entries"),
            std::string::npos);
  model.spans.pop_back();
  EXPECT_FALSE(map.CheckSizes(model.spans).ok());
}

}  // namespace
}  // namespace tensorlightning
