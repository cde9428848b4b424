// One simulated worker: a model, a random walk, and a real ElasticClient.
//
// The driver's thread steps it. What blocks (joining, crashing, comparing) is
// for helper threads; meanwhile it is `away`, and the driver leaves it alone.
#ifndef TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_WORKER_H_
#define TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_WORKER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/client/elastic_client.h"
#include "comm/tools/tl_load_ledger.h"
#include "comm/tools/tl_load_settings.h"
#include "comm/tools/tl_load_tally.h"
#include "comm/tools/tl_load_walk.h"

namespace tensorlightning {

// What all workers of a process have in common; outlives them.
struct LoadCommon {
  const Load& load;
  const WalkTable& table;
  std::shared_ptr<ThreadPool> pool;
  Ledger* ledger;  // None: null.
  size_t shards;
  uint64_t first_attempt;  // Of every worker.
};

class LoadWorker {
 public:
  LoadWorker(const LoadCommon& common, uint32_t index);

  // ---- The driver's. --------------------------------------------------------

  std::atomic<bool> away{false};
  std::atomic<bool> failed{false};
  std::chrono::steady_clock::time_point due;

  // Whether a step may be taken now. A gradient policy goes on only with the
  // answer; others do without it, unless steps take no time. One that has
  // failed may: the step says why.
  bool Ready() const;
  Status Step();
  // Instead of a step, under a gradient policy: exchanges what there is, and
  // then zeros.
  Status ExchangeRest();
  // Whether the last of these that has ended found nothing left to send, and
  // every shard's push was answered.
  bool Drained() const;

  uint64_t steps() const { return steps_; }
  SmallRandom& random() { return random_; }

  // ---- Helpers'. ------------------------------------------------------------

  // Also after Crash(), as a later attempt of the same rank.
  Status Join();
  void CutConnections() { client_->CutConnections(); }
  // As if the process had died: without a word to the aggregator.
  void Crash();
  // Waits for what is under way. Whether both ends' views agree.
  Status WaitUntilIdle();
  Result<bool> ViewsAgree() { return client_->ViewsAgree(); }
  Result<std::string> AggregatorStatus() { return client_->AggregatorStatus(); }
  // The centre, tensor after tensor, in the layout's order.
  Result<std::span<const float>> Centre();
  void Leave();

  // ---- Anybody's. -----------------------------------------------------------

  // "worker 3 (rank 7)"
  std::string Name() const;
  // Adds what it has counted, all attempts together.
  void AddTo(Tally& tally) const;
  uint64_t joining_bytes() const { return joining_bytes_; }
  // Live workers as it knows; 0 while it has no connection of its own.
  uint32_t live() const;

 private:
  Status TakeMean();
  void Retire();

  const LoadCommon& common_;
  const uint32_t index_;
  std::vector<float> values_;
  std::vector<std::span<float>> tensors_;
  SmallRandom random_;
  uint64_t steps_ = 0;
  uint64_t attempt_;
  std::atomic<int32_t> rank_;
  std::atomic<uint64_t> joining_bytes_{0};

  // Of the last ExchangeRest(): whether there was one, whether the one before
  // it found anything, and the counts when it began.
  bool rest_begun_ = false;
  bool drained_before_ = false;
  uint64_t entries_before_ = 0;
  uint64_t pushes_before_ = 0;

  mutable std::mutex mutex_;  // Of what AddTo() reads.
  std::unique_ptr<ElasticClient> client_;
  Tally retired_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_WORKER_H_
