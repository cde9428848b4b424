#include "comm/client/worker_shard.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/dense.h"
#include "kernels/finite.h"
#include "kernels/worker_state.h"

namespace tensorlightning {
namespace {

const Compression kEverything{SelectionRule::ChunkTopK(1.0),
                              ValueCode::kFloat32};

Compression UpOf(const Policy& policy, const Shard& shard) {
  return shard.dense ? DenseCompression(policy.up.values) : policy.up;
}

// Of an average, the last push: what is rounded away now is never sent.
Compression LastOf(const Policy& policy, const Shard& shard) {
  if (shard.dense) return DenseCompression(policy.up.values);
  return {SelectionRule::ChunkTopK(1.0),
          std::min(policy.up.values, ValueCode::kBits8)};
}

class AveragingShard final : public WorkerShard {
 public:
  AveragingShard(const Policy& policy, const Shard& shard,
                 std::shared_ptr<WorkerScratch> scratch)
      : policy_(policy),
        up_(UpOf(policy, shard)),
        last_(LastOf(policy, shard)),
        state_(MakeWorkerState(Place::kCpu, shard.entries, scratch->workspace)),
        scratch_(std::move(scratch)) {}

  Status Load(std::span<const float> centre) override {
    return state_->Reload(centre);
  }

  Result<Emitted> Step(std::span<float> staged, uint32_t live,
                       std::span<std::byte> out) override {
    const bool mirror = policy_.mirror || live == 0;
    // What is owed beside a mirror is in the model still: it counts once. And
    // in the end, changes of long ago, all at once, would lead too far.
    const bool was_mirror = std::exchange(mirrored_, mirror);
    if (!mirror && (was_mirror || everything_)) {
      Status cleared = ClearOwed();
      if (!cleared.ok()) return cleared.error();
    }
    if (mirror) {
      // Nobody else has a part in it: the centre is to be this very model.
      Result<Emitted> emitted =
          state_->Mirror(staged.data(), everything_ ? kEverything : up_, out);
      std::fill(staged.begin(), staged.end(), 0.0f);
      return emitted;
    }
    std::vector<float>& before = scratch_->before;
    before.assign(staged.begin(), staged.end());
    Result<Emitted> emitted = state_->Step(staged.data(), policy_.For(live),
                                           everything_ ? last_ : up_, out);
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
  void SendEverything() override { everything_ = true; }
  Status Owe(const Message& lost) override { return state_->Owe(lost); }
  Status ReadView(std::span<float> view) const override {
    return state_->ReadView(view);
  }
  size_t MaxPushBytes() const override {
    return (everything_ ? kEverything : up_).MaxBytes(state_->entries());
  }

 private:
  Status ClearOwed() {
    std::vector<float>& view = scratch_->before;
    view.resize(state_->entries());
    Status status = state_->ReadView(view);
    if (status.ok()) status = state_->Load(view);
    return status;
  }

  Policy policy_;
  Compression up_;
  Compression last_;
  std::unique_ptr<WorkerState> state_;
  std::shared_ptr<WorkerScratch> scratch_;
  bool mirrored_ = false;    // By the last step.
  bool everything_ = false;  // Is to be sent from now on.
};

class GradientShard final : public WorkerShard {
 public:
  GradientShard(const Policy& policy, const Shard& shard,
                std::shared_ptr<WorkerScratch> scratch)
      : up_(UpOf(policy, shard)),
        momentum_(static_cast<float>(policy.momentum)),
        scratch_(std::move(scratch)),
        velocity_(momentum_ > 0.0f ? shard.entries : 0),
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
    if (velocity_.empty() || staged.empty()) {
      return Compress(owed_, staged, up_, *scratch_->workspace, out);
    }
    const Status status = Accelerate(staged);
    if (!status.ok()) return status.error();
    Result<Emitted> emitted =
        Compress(owed_, velocity_, up_, *scratch_->workspace, out);
    if (emitted.ok()) StopWhatWasSent(out.first(emitted->bytes));
    return emitted;
  }

  Status Postpone(std::span<float> staged) override {
    Status status = CheckFinite(staged, "the gradient", kUsableBits);
    if (status.ok() && !velocity_.empty()) status = Accelerate(staged);
    if (!status.ok()) return status;
    const std::span<const float> step =
        velocity_.empty() ? staged : std::span(velocity_);
    for (size_t i = 0; i < owed_.size(); ++i) owed_[i] += step[i];
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

  void SendEverything() override { up_ = kEverything; }

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
  // u = m u + g
  Status Accelerate(std::span<const float> gradient) {
    Status status = CheckFinite(gradient, "the gradient", kUsableBits);
    if (!status.ok()) return status;
    for (size_t i = 0; i < velocity_.size(); ++i) {
      velocity_[i] = momentum_ * velocity_[i] + gradient[i];
    }
    return status;
  }

  // An entry that was sent late carries steps of long ago: it starts from rest,
  // or they would go on pushing. Where everything is sent every time, nothing
  // is ever late, and momentum is left alone.
  void StopWhatWasSent(std::span<const std::byte> code) {
    if (up_.rule.MaxKept(owed_.size()) == owed_.size()) return;
    const Result<Message> sent = Message::Parse(code, owed_.size());
    if (!sent.ok()) return;
    std::vector<float>& values = scratch_->before;
    values.assign(owed_.size(), 0.0f);
    DecodeAdd(*sent, values, 1.0f);
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != 0.0f) velocity_[i] = 0.0f;
    }
  }

  Compression up_;
  float momentum_;
  std::shared_ptr<WorkerScratch> scratch_;
  bool loaded_ = false;
  std::vector<float> velocity_;  // Empty without momentum.
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
  return std::make_unique<GradientShard>(policy, shard, std::move(scratch));
}

}  // namespace tensorlightning
