// A worker's side of the account; read without locks, from any thread.
#ifndef TENSORLIGHTNING_COMM_CLIENT_CLIENT_COUNTS_H_
#define TENSORLIGHTNING_COMM_CLIENT_CLIENT_COUNTS_H_

#include <atomic>
#include <cstdint>

#include "comm/histogram.h"

namespace tensorlightning {

struct ClientCounts {
  std::atomic<uint64_t> steps{0};
  std::atomic<uint64_t> exchanges{0};   // Completed.
  std::atomic<uint64_t> backed_off{0};  // Due while one was under way.
  std::atomic<uint64_t> pushes{0};      // Answered; one per shard.
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> not_finite{0};  // Never sent: the model has NaN or Inf.
  std::atomic<uint64_t> reconnects{0};
  std::atomic<uint64_t> resyncs{0};     // Shards pulled anew.
  std::atomic<uint64_t> owed_again{0};  // Pushes that were lost, and are owed.
  std::atomic<uint64_t> forgotten{0};   // Kept no longer, for want of room.

  std::atomic<uint64_t> bytes_sent{0};
  std::atomic<uint64_t> bytes_received{0};
  std::atomic<uint64_t> entries_sent{0};
  std::atomic<uint64_t> entries_received{0};
  // What exchanges of all entries as float32 would have moved, both ways.
  std::atomic<uint64_t> dense_bytes{0};

  // Pushes of others between two of this worker's, summed over `pushes`.
  std::atomic<uint64_t> staleness{0};
  // Own steps between the start of an exchange and its end, summed.
  std::atomic<uint64_t> steps_behind{0};

  Histogram latency;     // Of whole exchanges.
  Histogram round_trip;  // Of single pushes, from the queue to the reply.
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_CLIENT_CLIENT_COUNTS_H_
