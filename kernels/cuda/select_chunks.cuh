// The kernel that selects and quantises, one block per chunk of 4,096.
//
// Each thread loads and updates 16 entries, a stride of 256 apart, so that
// neighbours in a warp touch neighbours in memory; then it decides about 16
// adjacent ones, so that what is kept stays in order.
#ifndef TENSORLIGHTNING_KERNELS_CUDA_SELECT_CHUNKS_CUH_
#define TENSORLIGHTNING_KERNELS_CUDA_SELECT_CHUNKS_CUH_

#include <cuda_runtime.h>

#include "kernels/chunk.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/quantise.h"

namespace tensorlightning::cuda {

inline constexpr uint32_t kEntriesPerThread = kChunkEntries / kThreads;

// A chunk's values, padded so that 16 adjacent entries per thread fall into
// different banks.
class ChunkValues {
 public:
  __device__ float& operator[](uint32_t e) {
    return values_[e + e / kEntriesPerThread];
  }

 private:
  SharedArray<float, kChunkEntries + kThreads> values_;
};

struct SelectScratch {
  ChunkValues values;
  SharedArray<uint32_t, 256> bins;
  BlockTotals totals;
  SharedValue<uint32_t> digit;
  SharedValue<uint32_t> rank;
};

struct ChunkCut {
  uint32_t magnitude;
  Counter ties;
};

// The cut that keeps exactly k of the chunk: a radix select, 8 bits a round.
__device__ inline ChunkCut FindChunkCut(SelectScratch& scratch,
                                        uint32_t entries, uint32_t k) {
  uint32_t known = 0;
  uint32_t rank = k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    scratch.bins[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t mask = shift == 24 ? 0 : ~uint32_t{0} << (shift + 8);
    for (uint32_t e = threadIdx.x; e < entries; e += kThreads) {
      const uint32_t magnitude = MagnitudeBits(scratch.values[e]);
      if ((magnitude & mask) == known) {
        atomicAdd(&scratch.bins[magnitude >> shift & 255], 1u);
      }
    }
    __syncthreads();
    // From the highest bin down.
    const uint32_t bin = kThreads - 1 - threadIdx.x;
    const uint32_t count = scratch.bins[bin];
    uint32_t sum;
    const uint32_t above = BlockScan(count, scratch.totals, &sum);
    if (above < rank && rank <= above + count) {
      *scratch.digit = bin;
      *scratch.rank = rank - above;
    }
    __syncthreads();
    known |= *scratch.digit << shift;
    rank = *scratch.rank;
    __syncthreads();
  }
  return {known, rank};
}

struct SelectArguments {
  size_t entries;
  ValueCode code;
  uint32_t k_full;  // Of a whole chunk, and
  uint32_t k_last;  // of the last. 0: the cut is in the control block.
  bool keep_zeros;  // Selection alone keeps exactly k, zeros or not.
  const Control* control;
  const Counter* ties_before;  // Per chunk; null: none.
  uint32_t slots;
  uint16_t* positions;
  uint32_t* symbols;
  uint32_t* counts;
  uint16_t* scales;
};

// kPrepared: the values were brought up to date by a kernel before. Four blocks
// to a multiprocessor leave 64 registers to a thread, so that none is spilled
// for the sake of an occupancy that shared memory does not allow anyway.
template <bool kPrepared, typename Source>
__global__ void __launch_bounds__(kThreads, 4)
    SelectChunks(Source source, SelectArguments to) {
  __shared__ SelectScratch scratch;
  if (IsUnusable(to.control)) return;
  const size_t chunk = blockIdx.x;
  const size_t begin = chunk * kChunkEntries;
  const uint32_t entries = SpanOf(to.entries, chunk, kChunkEntries);
  for (uint32_t e = threadIdx.x; e < entries; e += kThreads) {
    scratch.values[e] =
        kPrepared ? source.Value(begin + e) : source.Prepare(begin + e);
  }
  __syncthreads();

  const uint32_t k = entries == kChunkEntries ? to.k_full : to.k_last;
  const ChunkCut cut = k > 0
                           ? FindChunkCut(scratch, entries, k)
                           : ChunkCut{to.control->magnitude, to.control->ties};

  // From here on each thread has entries [first, last).
  const uint32_t first = threadIdx.x * kEntriesPerThread;
  const uint32_t last = min(first + kEntriesPerThread, entries);
  uint32_t equal = 0;
  for (uint32_t e = first; e < last; ++e) {
    equal += MagnitudeBits(scratch.values[e]) == cut.magnitude;
  }
  uint32_t sum;
  Counter tie = BlockScan(equal, scratch.totals, &sum);
  if (to.ties_before != nullptr) tie += to.ties_before[chunk];

  uint32_t selected = 0;  // A bit for each of this thread's entries.
  uint32_t largest = 0;
  for (uint32_t e = first; e < last; ++e) {
    const uint32_t magnitude = MagnitudeBits(scratch.values[e]);
    const bool keep = magnitude > cut.magnitude ||
                      (magnitude == cut.magnitude && tie++ < cut.ties);
    if (!keep) continue;
    selected |= 1u << (e - first);
    largest = magnitude > largest ? magnitude : largest;
  }
  uint32_t scale = 0;
  if (HasScale(to.code)) {
    largest = BlockMax(largest, scratch.totals);
    scale = ScaleFor(to.code, __uint_as_float(largest));
    if (scale == 0) selected = 0;
  }
  const float step = FromUpperHalf(scale);

  uint32_t kept = 0;
  for (uint32_t e = first; e < last; ++e) {
    if ((selected >> (e - first) & 1) == 0) continue;
    const Quantised quantised = Quantise(to.code, scratch.values[e], step);
    if (quantised.kept || to.keep_zeros) {
      ++kept;
    } else {
      selected &= ~(1u << (e - first));
    }
  }
  size_t slot = chunk * to.slots + BlockScan(kept, scratch.totals, &sum);
  const uint32_t base =
      static_cast<uint32_t>(chunk % kGroupChunks) * kChunkEntries;
  for (uint32_t e = first; e < last; ++e) {
    if ((selected >> (e - first) & 1) == 0) continue;
    const uint32_t symbol = Quantise(to.code, scratch.values[e], step).symbol;
    to.positions[slot] = static_cast<uint16_t>(base + e);
    to.symbols[slot++] = symbol;
    source.Sent(begin + e, Dequantise(to.code, symbol, step));
  }
  if (threadIdx.x == 0) {
    to.counts[chunk] = sum;
    to.scales[chunk] = static_cast<uint16_t>(scale);
  }
  __syncthreads();
  for (uint32_t e = threadIdx.x; e < entries; e += kThreads) {
    source.Finish(begin + e);
  }
}

// Global top-k needs all values before it can cut.
template <typename Source>
__global__ void __launch_bounds__(kThreads)
    PrepareAll(Source source, size_t entries, const Control* control) {
  if (IsUnusable(control)) return;
  const size_t stride = size_t{gridDim.x} * kThreads;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < entries;
       i += stride) {
    source.Prepare(i);
  }
}

}  // namespace tensorlightning::cuda

#endif  // TENSORLIGHTNING_KERNELS_CUDA_SELECT_CHUNKS_CUH_
