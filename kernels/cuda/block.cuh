// Sums, scans and maxima over the 256 threads of a block. All threads of the
// block must call, and may call again at once: each ends behind a barrier.
#ifndef TENSORLIGHTNING_KERNELS_CUDA_BLOCK_CUH_
#define TENSORLIGHTNING_KERNELS_CUDA_BLOCK_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/shared_array.h"

namespace tensorlightning::cuda {

inline constexpr uint32_t kThreads = 256;
inline constexpr uint32_t kWarpThreads = 32;
inline constexpr uint32_t kWarps = kThreads / kWarpThreads;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

using BlockTotals = SharedArray<uint32_t, kWarps>;

// A test removes this barrier to see that the race is noticed.
__device__ __forceinline__ void BarrierOfScan() {
#ifndef TL_TEST_WITHOUT_BARRIER
  __syncthreads();
#endif
}

// The sum of `value` over the threads before this one; `sum` of all threads.
__device__ inline uint32_t BlockScan(uint32_t value, BlockTotals& totals,
                                     uint32_t* sum) {
  const uint32_t lane = threadIdx.x % kWarpThreads;
  const uint32_t warp = threadIdx.x / kWarpThreads;
  uint32_t inclusive = value;
  for (uint32_t distance = 1; distance < kWarpThreads; distance *= 2) {
    const uint32_t below = __shfl_up_sync(kAllLanes, inclusive, distance);
    if (lane >= distance) inclusive += below;
  }
  if (lane == kWarpThreads - 1) totals[warp] = inclusive;
  BarrierOfScan();
  uint32_t before = 0;
  *sum = 0;
  for (uint32_t w = 0; w < kWarps; ++w) {
    const uint32_t total = totals[w];
    if (w < warp) before += total;
    *sum += total;
  }
  __syncthreads();
  return before + inclusive - value;
}

__device__ inline uint32_t BlockSum(uint32_t value, BlockTotals& totals) {
  uint32_t sum;
  BlockScan(value, totals, &sum);
  return sum;
}

__device__ inline uint32_t BlockMax(uint32_t value, BlockTotals& totals) {
  for (uint32_t distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    const uint32_t other = __shfl_down_sync(kAllLanes, value, distance);
    value = other > value ? other : value;
  }
  if (threadIdx.x % kWarpThreads == 0) {
    totals[threadIdx.x / kWarpThreads] = value;
  }
  __syncthreads();
  value = 0;
  for (uint32_t w = 0; w < kWarps; ++w) {
    value = totals[w] > value ? totals[w] : value;
  }
  __syncthreads();
  return value;
}

}  // namespace tensorlightning::cuda

#endif  // TENSORLIGHTNING_KERNELS_CUDA_BLOCK_CUH_
