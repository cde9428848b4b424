// Checks, exact cuts and running totals over whole vectors on the device. All
// only enqueue work; see workspace.h for how they talk to each other.
#ifndef TENSORLIGHTNING_KERNELS_CUDA_CUT_H_
#define TENSORLIGHTNING_KERNELS_CUDA_CUT_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/workspace.h"
#include "kernels/result.h"

namespace tensorlightning::cuda {

// Counts values whose magnitude bits are `limit` or more, into input `which`.
Status CheckBelow(const float* values, size_t n, uint32_t limit, uint32_t which,
                  Control* control, cudaStream_t stream);

// Leaves in the control block the cut that keeps exactly k of the values.
// workspace.bins must have room for kBins.
Status FindCut(const float* values, size_t n, size_t k,
               DeviceWorkspace& workspace, cudaStream_t stream);

// Turns the cut into a floor of at least the smallest float: everything that
// reaches it is kept, as many as there are.
Status CutToFloor(Control* control, cudaStream_t stream);

// ties[j] = how many entries of chunk j equal the cut.
Status CountTies(const float* values, size_t n, const Control* control,
                 uint32_t* ties, cudaStream_t stream);

// offsets[i] = start + the sum of counts before i, for i in [0, n];
// control->total = offsets[n].
Status MakeOffsets(const uint32_t* counts, size_t n, Counter start,
                   Counter* offsets, Control* control, cudaStream_t stream);

}  // namespace tensorlightning::cuda

#endif  // TENSORLIGHTNING_KERNELS_CUDA_CUT_H_
