#include "comm/shards.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace tensorlightning {
namespace {

// Cuts [begin, end) of the wire vector into shards.
void Cut(size_t begin, size_t end, bool dense, std::vector<Shard>& shards) {
  while (begin < end) {
    const size_t entries = std::min(kShardEntries, end - begin);
    shards.push_back({begin, static_cast<uint32_t>(entries), dense});
    begin += entries;
  }
}

}  // namespace

ShardMap::ShardMap(const Layout& layout) {
  const std::span<const Tensor> tensors = layout.tensors();
  places_.resize(tensors.size());
  size_t dense_begin = 0;
  for (const bool small : {false, true}) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const size_t count = tensors[i].entries();
      if ((count <= kSmallTensorEntries) != small) continue;
      places_[i] = {tensors[i].name, entries_, count};
      entries_ += count;
    }
    if (!small) dense_begin = entries_;
  }
  Cut(0, dense_begin, /*dense=*/false, shards_);
  Cut(dense_begin, entries_, /*dense=*/true, shards_);
}

Result<ShardRange> ShardMap::Part(uint32_t part, uint32_t parts) const {
  const auto count = static_cast<uint32_t>(shards_.size());
  if (part >= parts) {
    return Error{ErrorCode::kInvalidArgument,
                 "part " + std::to_string(part) + " of " +
                     std::to_string(parts) +
                     ": parts are counted from 0 and there is none of that "
                     "number"};
  }
  if (parts > count) {
    return Error{ErrorCode::kInvalidArgument,
                 "the model has " + std::to_string(count) +
                     (count == 1 ? " shard" : " shards") +
                     " and can't be spread over " + std::to_string(parts) +
                     " aggregators; start at most as many as shards"};
  }
  // Each cut is at the shard nearest to where it should be, but leaves at least
  // one shard to every part before and after it.
  const auto cut_after = [&](uint32_t index, uint32_t previous) {
    if (index == parts) return count;
    // Fits: there are at most 2^40 entries and 2^22 shards.
    const size_t ideal = entries_ * index / parts;
    const auto after =
        std::ranges::upper_bound(shards_, ideal, {}, &Shard::begin);
    // The shard that the ideal cut falls into; entry 0 begins the first.
    auto nearest = static_cast<uint32_t>(after - shards_.begin()) - 1;
    const Shard& shard = shards_[nearest];
    if (ideal - shard.begin > shard.entries / 2) ++nearest;
    return std::clamp(nearest, previous + 1, count - (parts - index));
  };
  ShardRange range;
  for (uint32_t index = 1; index <= part + 1; ++index) {
    range = {range.end, cut_after(index, range.end)};
  }
  return range;
}

Status ShardMap::CheckSizes(std::span<const std::span<float>> tensors) const {
  if (tensors.size() != places_.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 std::to_string(tensors.size()) +
                     " tensors were given for a layout of " +
                     std::to_string(places_.size())};
  }
  for (size_t i = 0; i < places_.size(); ++i) {
    if (tensors[i].size() == places_[i].entries) continue;
    return Error{ErrorCode::kInvalidArgument,
                 "tensor " + std::to_string(i) + " '" + places_[i].name +
                     "' has " + std::to_string(tensors[i].size()) +
                     " entries; its layout says " +
                     std::to_string(places_[i].entries)};
  }
  return Done{};
}

void ShardMap::Gather(std::span<const std::span<float>> tensors,
                      std::span<float> wire) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    std::memcpy(wire.data() + places_[i].begin, tensors[i].data(),
                places_[i].entries * sizeof(float));
  }
}

void ShardMap::Scatter(std::span<const float> wire,
                       std::span<const std::span<float>> tensors) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    std::memcpy(tensors[i].data(), wire.data() + places_[i].begin,
                places_[i].entries * sizeof(float));
  }
}

void ShardMap::ScatterAdd(std::span<const float> wire,
                          std::span<const std::span<float>> tensors) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    const float* from = wire.data() + places_[i].begin;
    float* to = tensors[i].data();
    for (size_t j = 0; j < places_[i].entries; ++j) to[j] += from[j];
  }
}

}  // namespace tensorlightning
