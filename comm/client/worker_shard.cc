#include "comm/client/worker_shard.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/dense.h"
#include "kernels/finite.h"
#include "kernels/worker_state.h"

namespace tensorlightning {
namespace {

Compression UpOf(const Policy& policy, const Shard& shard) {
  return shard.dense ? DenseCompression(policy.up.values) : policy.up;
}

class AveragingShard final : public WorkerShard {
 public:
  AveragingShard(const Policy& policy, const Shard& shard,
                 std::shared_ptr<WorkerScratch> scratch)
      : policy_(policy),
        up_(UpOf(policy, shard)),
        state_(MakeWorkerState(Place::kCpu, shard.entries, scratch->workspace)),
        scratch_(std::move(scratch)) {}

  Status Load(std::span<const float> centre) override {
    return state_->Reload(centre);
  }

  Result<Emitted> Step(std::span<float> staged, uint32_t live,
                       std::span<std::byte> out) override {
    std::vector<float>& before = scratch_->before;
    before.assign(staged.begin(), staged.end());
    Result<Emitted> emitted =
        state_->Step(staged.data(), policy_.For(live), up_, out);
    if (!emitted.ok()) {
      std::fill(staged.begin(), staged.end(), 0.0f);
      return emitted;
    }
    for (size_t i = 0; i < staged.size(); ++i) staged[i] -= before[i];
    return emitted;
  }

  Status Postpone(std::span<float> staged) override {
    // The difference to the view will still be there next time.
    std::fill(staged.begin(), staged.end(), 0.0f);
    return Done{};
  }

  Status ApplyReply(const Message& reply) override {
    return state_->ApplyReply(reply);
  }
  void Deliver(std::span<float>, uint32_t) override {}
  Status Owe(const Message& lost) override { return state_->Owe(lost); }
  Status ReadView(std::span<float> view) const override {
    return state_->ReadView(view);
  }
  size_t MaxPushBytes() const override {
    return up_.MaxBytes(state_->entries());
  }

 private:
  Policy policy_;
  Compression up_;
  std::unique_ptr<WorkerState> state_;
  std::shared_ptr<WorkerScratch> scratch_;
};

class GradientShard final : public WorkerShard {
 public:
  GradientShard(const Policy& policy, const Shard& shard,
                const WorkerScratch& scratch)
      : up_(UpOf(policy, shard)),
        workspace_(scratch.workspace),
        owed_(shard.entries),
        heard_(shard.entries),
        news_(shard.entries) {}

  // What others have summed while this worker was away is news too.
  Status Load(std::span<const float> centre) override {
    if (loaded_) {
      for (size_t i = 0; i < heard_.size(); ++i) {
        news_[i] += centre[i] - heard_[i];
      }
    }
    std::copy(centre.begin(), centre.end(), heard_.begin());
    loaded_ = true;
    return Done{};
  }

  Result<Emitted> Step(std::span<float> staged, uint32_t,
                       std::span<std::byte> out) override {
    return Compress(owed_, staged, up_, *workspace_, out);
  }

  Status Postpone(std::span<float> staged) override {
    Status status = CheckFinite(staged, "the gradient", kUsableBits);
    if (!status.ok()) return status;
    for (size_t i = 0; i < owed_.size(); ++i) owed_[i] += staged[i];
    return status;
  }

  Status ApplyReply(const Message& reply) override {
    Status status = CheckNotHuge(reply, "the reply");
    if (status.ok()) DecodeAddBoth(reply, heard_, news_);
    return status;
  }

  void Deliver(std::span<float> staged, uint32_t live) override {
    const float share = 1.0f / static_cast<float>(std::max<uint32_t>(live, 1));
    for (size_t i = 0; i < news_.size(); ++i) {
      staged[i] = news_[i] * share;
      news_[i] = 0.0f;
    }
  }

  Status Owe(const Message& lost) override {
    Status status = CheckNotHuge(lost, "the lost push");
    if (status.ok()) DecodeAdd(lost, owed_, 1.0f);
    return status;
  }
  Status ReadView(std::span<float> view) const override {
    std::copy(heard_.begin(), heard_.end(), view.begin());
    return Done{};
  }
  size_t MaxPushBytes() const override { return up_.MaxBytes(owed_.size()); }

 private:
  Compression up_;
  std::shared_ptr<Workspace> workspace_;
  bool loaded_ = false;
  std::vector<float> owed_;
  std::vector<float> heard_;  // The same bits as the aggregator's view.
  std::vector<float> news_;   // Heard, and not delivered yet.
};

}  // namespace

std::unique_ptr<WorkerShard> MakeWorkerShard(
    const Policy& policy, const Shard& shard,
    std::shared_ptr<WorkerScratch> scratch) {
  if (policy.rule == Rule::kAverage) {
    return std::make_unique<AveragingShard>(policy, shard, std::move(scratch));
  }
  return std::make_unique<GradientShard>(policy, shard, *scratch);
}

}  // namespace tensorlightning
