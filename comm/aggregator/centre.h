// The centre: those shards of a model that this process serves, each on a
// strand of its own, so that they are worked on in parallel.
#ifndef TENSORLIGHTNING_COMM_AGGREGATOR_CENTRE_H_
#define TENSORLIGHTNING_COMM_AGGREGATOR_CENTRE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/aggregator/centre_shard.h"
#include "comm/layout.h"
#include "comm/shards.h"
#include "comm/transport/asio.h"
#include "comm/transport/thread_pool.h"

namespace tensorlightning {

class Centre {
 public:
  struct Served {
    Served(CentreShard shard, Strand its)
        : state(std::move(shard)), strand(std::move(its)) {}

    CentreShard state;  // To be touched on the strand only.
    Strand strand;
  };

  Centre(Layout layout, ShardRange range, Rule rule, bool durable_by_snapshot,
         ThreadPool& pool)
      : layout_(std::move(layout)), map_(layout_), range_(range), rule_(rule) {
    for (uint32_t i = range.begin; i < range.end; ++i) {
      served_.push_back(std::make_unique<Served>(
          CentreShard(i, map_.shards()[i], rule, durable_by_snapshot),
          pool.MakeStrand()));
    }
  }

  const Layout& layout() const { return layout_; }
  const ShardMap& map() const { return map_; }
  ShardRange range() const { return range_; }
  Rule rule() const { return rule_; }

  // shard must be in range().
  Served& at(uint32_t shard) { return *served_[shard - range_.begin]; }

 private:
  Layout layout_;
  ShardMap map_;
  ShardRange range_;
  Rule rule_;
  std::vector<std::unique_ptr<Served>> served_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_AGGREGATOR_CENTRE_H_
