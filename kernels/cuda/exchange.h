// kernels/exchange.h for vectors in device memory: the same functions, the same
// bits, on a stream. Each returns when its work on the stream is done, since
// the length of a code is known only then.
//
// These kernels have been compiled by nvcc and executed by the emulator in
// kernels/cuda/emulator; they have not been run on a GPU.
#ifndef TENSORLIGHTNING_KERNELS_CUDA_EXCHANGE_H_
#define TENSORLIGHTNING_KERNELS_CUDA_EXCHANGE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/workspace.h"
#include "kernels/decode.h"
#include "kernels/exchange.h"
#include "kernels/result.h"

namespace tensorlightning::cuda {

// Pointers are to device memory, n entries each; `out` has room for
// compression.MaxBytes(n).
Result<Emitted> WorkerStep(float* x, float* c, float* r, size_t n,
                           Coefficients coefficients,
                           const Compression& compression,
                           DeviceWorkspace& workspace, std::byte* out,
                           cudaStream_t stream);

Result<Emitted> MakeReply(const float* centre, float* view, size_t n,
                          const Compression& compression,
                          DeviceWorkspace& workspace, std::byte* out,
                          cudaStream_t stream);

// g may be null: nothing to add.
Result<Emitted> Compress(float* r, const float* g, size_t n,
                         const Compression& compression,
                         DeviceWorkspace& workspace, std::byte* out,
                         cudaStream_t stream);

// The message's bytes are in host memory, where they arrived and were checked.
Status DecodeAdd(const Message& message, float* y, float scale,
                 DeviceWorkspace& workspace, cudaStream_t stream);
Status ApplyPush(const Message& push, float* centre, float* view,
                 DeviceWorkspace& workspace, cudaStream_t stream);

// The number of indices written to `indices`, room for rule.MaxKept(n).
Result<size_t> Select(const float* values, size_t n, const SelectionRule& rule,
                      DeviceWorkspace& workspace, uint32_t* indices,
                      cudaStream_t stream);

// r += g; what reaches the threshold moves to indices and values.
Result<size_t> Prune(float* r, const float* g, size_t n, float threshold,
                     DeviceWorkspace& workspace, uint32_t* indices,
                     float* values, cudaStream_t stream);

}  // namespace tensorlightning::cuda

#endif  // TENSORLIGHTNING_KERNELS_CUDA_EXCHANGE_H_
