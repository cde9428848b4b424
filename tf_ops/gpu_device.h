// What sparse_kernels.h wants of a device, on a GPU: all but the stream, so
// that it knows nothing of TensorFlow and runs in the emulator, too.
#ifndef TENSORLIGHTNING_TF_OPS_GPU_DEVICE_H_
#define TENSORLIGHTNING_TF_OPS_GPU_DEVICE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/cuda/buffer.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/workspace.h"
#include "kernels/decode.h"
#include "kernels/exchange.h"
#include "kernels/result.h"

namespace tensorlightning {

class GpuDevice {
 public:
  struct State {
    cuda::DeviceWorkspace workspace;
    cuda::DeviceBuffer<std::byte> device_code;
    std::vector<std::byte> code;
  };

  GpuDevice(cudaStream_t stream, State& state)
      : stream_(stream), state_(state) {}

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
  cudaStream_t stream_;
  State& state_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_TF_OPS_GPU_DEVICE_H_
