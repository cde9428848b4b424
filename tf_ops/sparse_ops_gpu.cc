// The pure ops on a GPU: the same kernels, with memory and arithmetic of
// kernels/cuda. Compiled by the C++ compiler; what nvcc has to see is in
// kernels/cuda alone. Loads, and does nothing, where there is no GPU.
//
// Compiled and linked here, never run on a GPU.
#include <cuda_runtime.h>

#include "kernels/cuda/buffer.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/workspace.h"
#include "tf_ops/sparse_kernels.h"
#include "xla/stream_executor/stream.h"

namespace tensorlightning {
namespace {

namespace tf = tensorflow;

class Gpu {
 public:
  struct State {
    cuda::DeviceWorkspace workspace;
    cuda::DeviceBuffer<std::byte> device_code;
    std::vector<std::byte> code;
  };

  Gpu(tf::OpKernelContext* ctx, State& state)
      : state_(state),
        stream_(static_cast<cudaStream_t>(ctx->op_device_context()
                                              ->stream()
                                              ->platform_specific_handle()
                                              .stream)) {}

  Status Copy(const float* from, float* to, size_t n) const {
    return cuda::ToStatus(cudaMemcpyAsync(to, from, n * sizeof(float),
                                          cudaMemcpyDeviceToDevice, stream_),
                          "copy on the GPU");
  }
  Status Clear(float* to, size_t n) const {
    return cuda::ToStatus(cudaMemsetAsync(to, 0, n * sizeof(float), stream_),
                          "clear on the GPU");
  }

  Result<std::span<const std::byte>> Compress(float* r, const float* g,
                                              size_t n,
                                              const Compression& compression) {
    Status status = compression.Check(n);
    if (status.ok()) {
      status = state_.device_code.Reserve(compression.MaxBytes(n));
    }
    if (!status.ok()) return status.error();
    const Result<Emitted> emitted =
        cuda::Compress(r, g, n, compression, state_.workspace,
                       state_.device_code.get(), stream_);
    if (!emitted.ok()) return emitted.error();
    state_.code.resize(emitted->bytes);
    status = cuda::ToStatus(
        cudaMemcpyAsync(state_.code.data(), state_.device_code.get(),
                        emitted->bytes, cudaMemcpyDeviceToHost, stream_),
        "copy from the GPU");
    if (status.ok()) {
      status =
          cuda::ToStatus(cudaStreamSynchronize(stream_), "waiting for the GPU");
    }
    if (!status.ok()) return status.error();
    return std::span<const std::byte>(state_.code);
  }

  Status DecodeAdd(const Message& message, float* y) {
    return cuda::DecodeAdd(message, y, 1.0f, state_.workspace, stream_);
  }

 private:
  State& state_;
  cudaStream_t stream_;
};

REGISTER_KERNEL_BUILDER(
    Name("TlPrune").Device(tf::DEVICE_GPU).HostMemory("density"), PruneOp<Gpu>);
REGISTER_KERNEL_BUILDER(
    Name("TlPruneGradient").Device(tf::DEVICE_GPU).HostMemory("density"),
    PruneGradientOp<Gpu>);
REGISTER_KERNEL_BUILDER(Name("TlSparseEncode")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("density")
                            .HostMemory("code"),
                        SparseEncodeOp<Gpu>);
REGISTER_KERNEL_BUILDER(Name("TlSparseDecode")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("code")
                            .HostMemory("shape"),
                        SparseDecodeOp<Gpu>);

}  // namespace
}  // namespace tensorlightning
