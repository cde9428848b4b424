// How a layout is cut into shards, the units that travel, are applied, are
// stored and are spread over processes.
//
//   tensors   | kernel1 |b1| kernel2 |b2|          as the framework has them
//   wire      | kernel1 | kernel2 ...  |b1|b2|     small ones go to the end
//   shards    |  sparse 0  |  sparse 1 | dense 2 | kShardEntries to each
//
// Tensors of up to kSmallTensorEntries (biases, norms) are gathered in shards
// of their own, all of whose entries travel in every exchange; of the other
// shards only the selected ones do. Both ends derive the same shards from the
// same layout. Each shard is an exchange of its own, with its own sequence
// numbers: nothing is ever promised across shards.
#ifndef TENSORLIGHTNING_COMM_SHARDS_H_
#define TENSORLIGHTNING_COMM_SHARDS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/layout.h"
#include "kernels/result.h"

namespace tensorlightning {

inline constexpr size_t kShardEntries = size_t{1} << 18;  // 1 MiB of floats.
inline constexpr size_t kSmallTensorEntries = 1024;

struct Shard {
  size_t begin;      // In the wire vector.
  uint32_t entries;  // At most kShardEntries.
  bool dense;

  bool operator==(const Shard&) const = default;
};

// A run of shards: what one aggregator process serves.
struct ShardRange {
  uint32_t begin = 0;
  uint32_t end = 0;

  bool Contains(uint32_t shard) const { return shard >= begin && shard < end; }
  uint32_t size() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

class ShardMap {
 public:
  explicit ShardMap(const Layout& layout);

  std::span<const Shard> shards() const { return shards_; }
  size_t entries() const { return entries_; }

  // Part `part` of `parts` nearly equal ones (by entries, cut at shards). An
  // error when there are fewer shards than parts, or part >= parts.
  Result<ShardRange> Part(uint32_t part, uint32_t parts) const;

  // Between the framework's tensors, in the layout's order, and the wire
  // vector. CheckSizes() first: an error that names the tensor whose size is
  // wrong; the others assume it.
  Status CheckSizes(std::span<const std::span<float>> tensors) const;
  void Gather(std::span<const std::span<float>> tensors,
              std::span<float> wire) const;
  void Scatter(std::span<const float> wire,
               std::span<const std::span<float>> tensors) const;
  // tensors += wire
  void ScatterAdd(std::span<const float> wire,
                  std::span<const std::span<float>> tensors) const;

 private:
  struct Place {
    std::string name;
    size_t begin = 0;  // In the wire vector.
    size_t entries = 0;
  };

  std::vector<Place> places_;  // In the layout's order.
  std::vector<Shard> shards_;
  size_t entries_ = 0;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_SHARDS_H_
