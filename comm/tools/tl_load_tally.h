// The accounts of many workers, summed.
#ifndef TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_TALLY_H_
#define TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_TALLY_H_

#include <cstdint>

#include "comm/client/client_counts.h"
#include "comm/histogram.h"

namespace tensorlightning {

// The names are ClientCounts'.
struct Tally {
  uint64_t steps = 0;
  uint64_t exchanges = 0;
  uint64_t backed_off = 0;
  uint64_t pushes = 0;
  uint64_t refused = 0;
  uint64_t not_finite = 0;
  uint64_t reconnects = 0;
  uint64_t resyncs = 0;
  uint64_t owed_again = 0;
  uint64_t forgotten = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t entries_sent = 0;
  uint64_t entries_received = 0;
  uint64_t dense_bytes = 0;
  uint64_t staleness = 0;
  uint64_t steps_behind = 0;
  Histogram latency;
  Histogram round_trip;

  void Add(const ClientCounts& counts) { AddAll(counts); }
  void Add(const Tally& other) { AddAll(other); }

 private:
  template <typename Counts>
  void AddAll(const Counts& other) {
    steps += other.steps;
    exchanges += other.exchanges;
    backed_off += other.backed_off;
    pushes += other.pushes;
    refused += other.refused;
    not_finite += other.not_finite;
    reconnects += other.reconnects;
    resyncs += other.resyncs;
    owed_again += other.owed_again;
    forgotten += other.forgotten;
    bytes_sent += other.bytes_sent;
    bytes_received += other.bytes_received;
    entries_sent += other.entries_sent;
    entries_received += other.entries_received;
    dense_bytes += other.dense_bytes;
    staleness += other.staleness;
    steps_behind += other.steps_behind;
    latency.Merge(other.latency);
    round_trip.Merge(other.round_trip);
  }
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_TALLY_H_
