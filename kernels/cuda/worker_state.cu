// The GPU's WorkerState: view and residual in device memory, the code in host
// memory. Registers itself when it is linked in.
#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "kernels/cuda/buffer.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/workspace.h"
#include "kernels/finite.h"
#include "kernels/worker_state.h"

namespace tensorlightning::cuda {
namespace {

class GpuWorkerState final : public WorkerState {
 public:
  explicit GpuWorkerState(size_t entries) : entries_(entries) {}
  ~GpuWorkerState() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  GpuWorkerState(const GpuWorkerState&) = delete;
  GpuWorkerState& operator=(const GpuWorkerState&) = delete;

  Status Start() {
    Status status = view_.Reserve(entries_ + 1);
    if (status.ok()) status = owed_.Reserve(entries_ + 1);
    if (status.ok()) {
      status = ToStatus(cudaStreamCreate(&stream_), "CUDA stream");
    }
    return status;
  }

  Place place() const override { return Place::kGpu; }
  size_t entries() const override { return entries_; }

  Status Load(std::span<const float> view) override {
    Status status = Reload(view);
    if (status.ok()) {
      status = ToStatus(cudaMemset(owed_.get(), 0, Bytes()), "clearing");
    }
    return status;
  }

  Status Reload(std::span<const float> view) override {
    Status status = CheckSize("the view", view.size());
    if (status.ok()) status = CheckFinite(view, "the view", kUsableBits);
    if (status.ok()) {
      status = ToStatus(
          cudaMemcpy(view_.get(), view.data(), Bytes(), cudaMemcpyHostToDevice),
          "copy to the GPU");
    }
    return status;
  }

  Result<Emitted> Step(float* x, Coefficients coefficients,
                       const Compression& compression,
                       std::span<std::byte> out) override {
    return Emit(compression, out, [&] {
      return WorkerStep(x, view_.get(), owed_.get(), entries_, coefficients,
                        compression, workspace_, code_.get(), stream_);
    });
  }

  Result<Emitted> Mirror(const float* x, const Compression& compression,
                         std::span<std::byte> out) override {
    return Emit(compression, out, [&]() -> Result<Emitted> {
      const Status status =
          ToStatus(cudaMemset(owed_.get(), 0, Bytes()), "clearing");
      if (!status.ok()) return status.error();
      return MakeReply(x, view_.get(), entries_, compression, workspace_,
                       code_.get(), stream_);
    });
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
  size_t Bytes() const { return entries_ * sizeof(float); }

  Status CheckSize(const char* what, size_t got) const {
    if (got == entries_) return Done{};
    return Error{ErrorCode::kInvalidArgument,
                 std::string(what) + " has " + std::to_string(got) +
                     " entries, the worker's model " +
                     std::to_string(entries_)};
  }

  // Runs `encode`, which writes to code_, and copies that to the host.
  template <typename Encode>
  Result<Emitted> Emit(const Compression& compression, std::span<std::byte> out,
                       Encode encode) {
    const size_t room = compression.MaxBytes(entries_);
    if (out.size() < room) {
      return Error{ErrorCode::kInvalidArgument,
                   "the output has room for " + std::to_string(out.size()) +
                       " bytes; the code may take " + std::to_string(room)};
    }
    Status status = code_.Reserve(room);
    if (!status.ok()) return status.error();
    Result<Emitted> emitted = encode();
    if (!emitted.ok()) return emitted;
    status = ToStatus(cudaMemcpy(out.data(), code_.get(), emitted->bytes,
                                 cudaMemcpyDeviceToHost),
                      "copy from the GPU");
    if (!status.ok()) return status.error();
    return emitted;
  }

  Status Add(const Message& message, const char* what,
             DeviceBuffer<float>& to) {
    Status status = CheckSize(what, message.entries());
    if (status.ok()) status = CheckNotHuge(message, what);
    if (status.ok()) {
      status = DecodeAdd(message, to.get(), 1.0f, workspace_, stream_);
    }
    return status;
  }

  Status Read(const DeviceBuffer<float>& from, std::span<float> to) const {
    Status status = CheckSize("the copy", to.size());
    if (status.ok()) {
      status = ToStatus(
          cudaMemcpy(to.data(), from.get(), Bytes(), cudaMemcpyDeviceToHost),
          "copy from the GPU");
    }
    return status;
  }

  size_t entries_;
  cudaStream_t stream_ = nullptr;
  DeviceBuffer<float> view_;
  DeviceBuffer<float> owed_;
  DeviceBuffer<std::byte> code_;
  DeviceWorkspace workspace_;
};

Result<std::unique_ptr<WorkerState>> Make(size_t entries) {
  // Without a driver the count is left as it was: only the result counts.
  int devices = 0;
  Status status = ToStatus(cudaGetDeviceCount(&devices), "CUDA");
  if (!status.ok()) return status.error();
  if (devices == 0) return Error{ErrorCode::kUnavailable, "CUDA: no device"};
  auto state = std::make_unique<GpuWorkerState>(entries);
  status = state->Start();
  if (!status.ok()) return status.error();
  return std::unique_ptr<WorkerState>(std::move(state));
}

[[maybe_unused]] const bool registered = RegisterGpuWorker(Make);

}  // namespace
}  // namespace tensorlightning::cuda
