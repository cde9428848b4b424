#include "kernels/chunk.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/cut.h"
#include "kernels/cuda/launch.h"
#include "kernels/quantise.h"

namespace tensorlightning::cuda {
namespace {

// Enough blocks to fill any device; each strides over what is left.
constexpr size_t kMaxBlocks = 2048;

uint32_t BlocksFor(size_t n) {
  const size_t blocks = (n + kChunkEntries - 1) / kChunkEntries;
  return static_cast<uint32_t>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

__global__ void __launch_bounds__(kThreads)
    CheckKernel(const float* values, size_t n, uint32_t limit, uint32_t which,
                Control* control) {
  const size_t stride = size_t{gridDim.x} * kThreads;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += stride) {
    if (MagnitudeBits(values[i]) < limit) continue;
    atomicAdd(&control->unusable[which], 1ull);
    atomicMin(&control->first[which], static_cast<Counter>(i));
  }
}

// Radix select of 31 bits in three rounds of 11, 10 and 10.
__global__ void __launch_bounds__(kThreads)
    CountBins(const float* values, size_t n, uint32_t shift, uint32_t bins,
              const Control* control, uint32_t* counts) {
  __shared__ SharedArray<uint32_t, kBins> own;
  for (uint32_t b = threadIdx.x; b < bins; b += kThreads) own[b] = 0;
  __syncthreads();
  const uint32_t known = control->magnitude;
  const uint32_t mask = control->known_bits;
  const size_t stride = size_t{gridDim.x} * kThreads;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += stride) {
    const uint32_t magnitude = MagnitudeBits(values[i]);
    if ((magnitude & mask) == known) {
      atomicAdd(&own[magnitude >> shift & (bins - 1)], 1u);
    }
  }
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < bins; b += kThreads) {
    if (own[b] != 0) atomicAdd(&counts[b], own[b]);
  }
}

// One block: finds the bin in which the rank lies, fixes those bits of the cut,
// and clears the bins for the next round.
__global__ void __launch_bounds__(kThreads)
    PickBin(uint32_t shift, uint32_t bins, uint32_t* counts, Control* control) {
  __shared__ BlockTotals totals;
  const uint32_t each = bins / kThreads;
  // Thread 0 has the highest bins.
  const uint32_t end = bins - threadIdx.x * each;
  uint32_t count = 0;
  for (uint32_t b = end - each; b < end; ++b) count += counts[b];
  uint32_t sum;
  Counter above = BlockScan(count, totals, &sum);
  const Counter rank = control->ties;
  __syncthreads();
  if (above < rank && rank <= above + count) {
    uint32_t bin = end - 1;
    while (above + counts[bin] < rank) above += counts[bin--];
    control->magnitude |= bin << shift;
    control->known_bits |= (bins - 1) << shift;
    control->ties = rank - above;
  }
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < bins; b += kThreads) counts[b] = 0;
}

__global__ void StartCut(size_t k, Control* control) {
  control->magnitude = 0;
  control->known_bits = 0;
  control->ties = k;
}

__global__ void ToFloor(Control* control) {
  if (control->magnitude == 0) control->magnitude = 1;
  control->ties = ~0ull;
}

__global__ void __launch_bounds__(kThreads)
    TiesKernel(const float* values, size_t n, const Control* control,
               uint32_t* ties) {
  __shared__ BlockTotals totals;
  const size_t chunk = blockIdx.x;
  const uint32_t entries = SpanOf(n, chunk, kChunkEntries);
  uint32_t equal = 0;
  for (uint32_t e = threadIdx.x; e < entries; e += kThreads) {
    equal +=
        MagnitudeBits(values[chunk * kChunkEntries + e]) == control->magnitude;
  }
  equal = BlockSum(equal, totals);
  if (threadIdx.x == 0) ties[chunk] = equal;
}

// One block walks over all counts; they are few (a count per chunk or group).
__global__ void __launch_bounds__(kThreads)
    OffsetsKernel(const uint32_t* counts, size_t n, Counter start,
                  Counter* offsets, Control* control) {
  __shared__ BlockTotals totals;
  Counter running = start;
  for (size_t begin = 0; begin < n; begin += kThreads) {
    const size_t i = begin + threadIdx.x;
    uint32_t sum;
    const uint32_t before = BlockScan(i < n ? counts[i] : 0, totals, &sum);
    if (i < n) offsets[i] = running + before;
    running += sum;
  }
  if (threadIdx.x == 0) {
    offsets[n] = running;
    control->total = running;
  }
}

}  // namespace

Status CheckBelow(const float* values, size_t n, uint32_t limit, uint32_t which,
                  Control* control, cudaStream_t stream) {
  if (n == 0) return Done{};
  return ToStatus(Launch(CheckKernel, BlocksFor(n), kThreads, stream, values, n,
                         limit, which, control),
                  "check");
}

Status FindCut(const float* values, size_t n, size_t k,
               DeviceWorkspace& workspace, cudaStream_t stream) {
  Control* const control = workspace.control.get();
  uint32_t* const bins = workspace.bins.get();
  cudaError_t code = cudaMemsetAsync(bins, 0, kBins * sizeof(uint32_t), stream);
  if (code == cudaSuccess) code = Launch(StartCut, 1, 1, stream, k, control);
  struct Round {
    uint32_t shift;
    uint32_t bins;
  };
  for (const Round round : {Round{20, 2048}, Round{10, 1024}, Round{0, 1024}}) {
    if (code == cudaSuccess) {
      code = Launch(CountBins, BlocksFor(n), kThreads, stream, values, n,
                    round.shift, round.bins, control, bins);
    }
    if (code == cudaSuccess) {
      code = Launch(PickBin, 1, kThreads, stream, round.shift, round.bins, bins,
                    control);
    }
  }
  return ToStatus(code, "find cut");
}

Status CutToFloor(Control* control, cudaStream_t stream) {
  return ToStatus(Launch(ToFloor, 1, 1, stream, control), "cut to floor");
}

Status CountTies(const float* values, size_t n, const Control* control,
                 uint32_t* ties, cudaStream_t stream) {
  return ToStatus(Launch(TiesKernel, static_cast<uint32_t>(ChunkCount(n)),
                         kThreads, stream, values, n, control, ties),
                  "count ties");
}

Status MakeOffsets(const uint32_t* counts, size_t n, Counter start,
                   Counter* offsets, Control* control, cudaStream_t stream) {
  return ToStatus(Launch(OffsetsKernel, 1, kThreads, stream, counts, n, start,
                         offsets, control),
                  "offsets");
}

}  // namespace tensorlightning::cuda
