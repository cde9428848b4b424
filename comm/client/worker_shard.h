// A worker's half of the algorithm, for one shard.
//
//   staged   what the caller brought: its model, or its gradient
//   Step     turns it into a push; an averaging rule leaves in `staged` what
//            is to be added to the caller's model
//   Deliver  once the reply is applied, a gradient rule leaves in `staged` the
//            mean of everybody's gradients
//
// Not for several threads at once.
#ifndef TENSORLIGHTNING_COMM_CLIENT_WORKER_SHARD_H_
#define TENSORLIGHTNING_COMM_CLIENT_WORKER_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/client/policy.h"
#include "comm/shards.h"
#include "kernels/decode.h"
#include "kernels/exchange.h"
#include "kernels/result.h"
#include "kernels/workspace.h"

namespace tensorlightning {

class WorkerShard {
 public:
  virtual ~WorkerShard() = default;

  // The centre, for the first time and again after the aggregator has lost this
  // worker's view: what is owed stays owed.
  virtual Status Load(std::span<const float> centre) = 0;

  // `out` has room for MaxPushBytes(). live is 1 only for who never had
  // company. A gradient rule takes an empty `staged` for no gradient at all.
  virtual Result<Emitted> Step(std::span<float> staged, uint32_t live,
                               std::span<std::byte> out) = 0;
  // Instead of Step(), when nothing can be sent now: nothing is lost.
  virtual Status Postpone(std::span<float> staged) = 0;
  virtual Status ApplyReply(const Message& reply) = 0;
  virtual void Deliver(std::span<float> staged, uint32_t live) = 0;
  // From now on pushes are not pruned: for the last one. An averaging rule
  // sends all of this step's share, in 8 bits if not in more, and drops what it
  // still owed; a mirror the model as it is; a gradient rule all that it owes.
  virtual void SendEverything() = 0;
  // A push that never arrived is owed again.
  virtual Status Owe(const Message& lost) = 0;

  // A copy of the worker's view of the centre.
  virtual Status ReadView(std::span<float> view) const = 0;

  virtual size_t MaxPushBytes() const = 0;
};

// What the shards of one worker, which are used in turns, share.
struct WorkerScratch {
  std::shared_ptr<Workspace> workspace = std::make_shared<Workspace>();
  std::vector<float> before;  // As long as a shard.
};

std::unique_ptr<WorkerShard> MakeWorkerShard(
    const Policy& policy, const Shard& shard,
    std::shared_ptr<WorkerScratch> scratch);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_CLIENT_WORKER_SHARD_H_
