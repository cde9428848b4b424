// A dense matrix on the device as CSR or COO, by cuSPARSE: for users who want
// the standard formats. Our own code (kernels/code_format.h) is smaller.
//
// The library is large (163 MB) and opened only here, and only when there is a
// device; without one, or without the library, the result is kUnavailable.
// Compiled and linked in CI; never run on a GPU.
#ifndef TENSORLIGHTNING_KERNELS_CUDA_CUSPARSE_H_
#define TENSORLIGHTNING_KERNELS_CUDA_CUSPARSE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/buffer.h"
#include "kernels/result.h"

namespace tensorlightning::cuda {

enum class SparseFormat { kCsr, kCoo };

// Device memory. Values that are zero are left out; entries are in row order.
struct SparseMatrix {
  SparseFormat format = SparseFormat::kCsr;
  size_t nonzeros = 0;
  DeviceBuffer<int32_t> rows;  // CSR: rows + 1 offsets. COO: a row per entry.
  DeviceBuffer<int32_t> columns;
  DeviceBuffer<float> values;
};

// `dense`: rows x columns in row-major order, device memory.
Result<SparseMatrix> DenseToSparse(const float* dense, int64_t rows,
                                   int64_t columns, SparseFormat format,
                                   cudaStream_t stream);

}  // namespace tensorlightning::cuda

#endif  // TENSORLIGHTNING_KERNELS_CUDA_CUSPARSE_H_
