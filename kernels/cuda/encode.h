// Turning kept entries on the device into code bytes, the same ones that the
// CPU's encoder writes; or into bare index and value arrays.
#ifndef TENSORLIGHTNING_KERNELS_CUDA_ENCODE_H_
#define TENSORLIGHTNING_KERNELS_CUDA_ENCODE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/workspace.h"
#include "kernels/quantise.h"
#include "kernels/result.h"

namespace tensorlightning::cuda {

// The memory that EncodeGroups() needs. All memory is had before the first
// kernel changes anything: an update must not be lost for the lack of it.
Status ReserveForEncoding(size_t entries, DeviceWorkspace& workspace);

// Enqueues the writing of the code to `out` (device memory, MaxCodeBytes() of
// room); control->total becomes its length, control->kept its entries.
Status EncodeGroups(const KeptChunks& kept, size_t entries, ValueCode code,
                    DeviceWorkspace& workspace, std::byte* out,
                    cudaStream_t stream);

// Enqueues the writing of indices and, unless null, values (as float32
// symbols say them); control->total becomes how many.
Status Flatten(const KeptChunks& kept, size_t entries,
               DeviceWorkspace& workspace, uint32_t* indices, float* values,
               cudaStream_t stream);

}  // namespace tensorlightning::cuda

#endif  // TENSORLIGHTNING_KERNELS_CUDA_ENCODE_H_
