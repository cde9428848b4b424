#include "kernels/worker_state.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/finite.h"
#include "kernels/workspace.h"

namespace tensorlightning {
namespace {

Error WrongSize(const char* what, size_t got, size_t wanted) {
  return {ErrorCode::kInvalidArgument,
          std::string(what) + " has " + std::to_string(got) +
              " entries, the worker's model " + std::to_string(wanted)};
}

class CpuWorkerState final : public WorkerState {
 public:
  CpuWorkerState(size_t entries, std::shared_ptr<Workspace> workspace)
      : view_(entries), owed_(entries), workspace_(std::move(workspace)) {}

  Place place() const override { return Place::kCpu; }
  size_t entries() const override { return view_.size(); }

  Status Load(std::span<const float> view) override {
    Status status = Reload(view);
    if (status.ok()) std::fill(owed_.begin(), owed_.end(), 0.0f);
    return status;
  }

  Status Reload(std::span<const float> view) override {
    if (view.size() != entries()) {
      return WrongSize("the view", view.size(), entries());
    }
    Status status = CheckFinite(view, "the view", kUsableBits);
    if (status.ok()) std::copy(view.begin(), view.end(), view_.begin());
    return status;
  }

  Result<Emitted> Step(float* x, Coefficients coefficients,
                       const Compression& compression,
                       std::span<std::byte> out) override {
    return WorkerStep({x, entries()}, view_, owed_, coefficients, compression,
                      *workspace_, out);
  }

  Result<Emitted> Mirror(const float* x, const Compression& compression,
                         std::span<std::byte> out) override {
    const std::span<const float> model(x, entries());
    const Status status = CheckFinite(model, "the model", kUsableBits);
    if (!status.ok()) return status.error();
    std::fill(owed_.begin(), owed_.end(), 0.0f);
    return MakeReply(model, view_, compression, *workspace_, out);
  }

  Status ApplyReply(const Message& reply) override {
    return Add(reply, "the reply", view_);
  }

  Status Owe(const Message& lost) override {
    return Add(lost, "the lost push", owed_);
  }

  Status ReadView(std::span<float> view) const override {
    return Read(view_, view);
  }
  Status ReadResidual(std::span<float> residual) const override {
    return Read(owed_, residual);
  }

 private:
  Status Add(const Message& message, const char* what,
             std::vector<float>& to) const {
    if (message.entries() != entries()) {
      return WrongSize(what, message.entries(), entries());
    }
    Status status = CheckNotHuge(message, what);
    if (status.ok()) DecodeAdd(message, to, 1.0f);
    return status;
  }

  static Status Read(const std::vector<float>& from, std::span<float> to) {
    if (to.size() != from.size()) {
      return WrongSize("the copy", to.size(), from.size());
    }
    std::copy(from.begin(), from.end(), to.begin());
    return Done{};
  }

  std::vector<float> view_;
  std::vector<float> owed_;
  std::shared_ptr<Workspace> workspace_;
};

std::atomic<GpuWorkerFactory>& GpuFactory() {
  static std::atomic<GpuWorkerFactory> factory{nullptr};
  return factory;
}

Result<std::unique_ptr<WorkerState>> MakeOnGpu(size_t entries) {
  const GpuWorkerFactory factory = GpuFactory().load();
  if (factory == nullptr) {
    return Error{ErrorCode::kUnavailable, "this build has no CUDA in it"};
  }
  return factory(entries);
}

}  // namespace

bool RegisterGpuWorker(GpuWorkerFactory factory) {
  GpuFactory().store(factory);
  return true;
}

std::unique_ptr<WorkerState> MakeWorkerState(
    Place wanted, size_t entries, std::shared_ptr<Workspace> workspace) {
  if (wanted == Place::kGpu) {
    Result<std::unique_ptr<WorkerState>> state = MakeOnGpu(entries);
    if (state.ok()) return std::move(*state);
    static std::once_flag said;
    std::call_once(said, [&] {
      std::fprintf(stderr,
                   "tensorlightning: no GPU to be had (%s); the CPU does its "
                   "work\n",
                   state.error().message.c_str());
    });
  }
  if (workspace == nullptr) workspace = std::make_shared<Workspace>();
  return std::make_unique<CpuWorkerState>(entries, std::move(workspace));
}

}  // namespace tensorlightning
