// One group's kept entries as the encoder's kernels see them: a row of entries
// numbered across the group's chunks.
#ifndef TENSORLIGHTNING_KERNELS_CUDA_GROUP_VIEW_CUH_
#define TENSORLIGHTNING_KERNELS_CUDA_GROUP_VIEW_CUH_

#include <cuda_runtime.h>

#include "kernels/chunk.h"
#include "kernels/code_format.h"
#include "kernels/cuda/shared_array.h"
#include "kernels/cuda/workspace.h"

namespace tensorlightning::cuda {

// begins[j]: how many entries come before chunk j of the group.
using ChunkBegins = SharedArray<uint32_t, kGroupChunks + 1>;

class GroupView {
 public:
  __device__ GroupView(const KeptChunks& kept, size_t entries, size_t group,
                       ChunkBegins& begins)
      : kept_(kept),
        begins_(begins),
        first_chunk_(group * kGroupChunks),
        entries_(SpanOf(entries, group, kGroupEntries)) {}

  // Fills in the begins; all threads of the block call.
  __device__ void Load() {
    if (threadIdx.x == 0) {
      uint32_t sum = 0;
      for (uint32_t j = 0; j < kGroupChunks; ++j) {
        begins_[j] = sum;
        if (j < chunks()) sum += kept_.counts[first_chunk_ + j];
      }
      begins_[kGroupChunks] = sum;
    }
    __syncthreads();
  }

  __device__ uint32_t entries() const { return entries_; }
  __device__ uint32_t chunks() const {
    return static_cast<uint32_t>(ChunkCount(entries_));
  }
  __device__ uint32_t count() const { return begins_[kGroupChunks]; }
  __device__ uint32_t Begin(uint32_t chunk) const { return begins_[chunk]; }
  __device__ uint32_t CountOf(uint32_t chunk) const {
    return begins_[chunk + 1] - begins_[chunk];
  }
  __device__ uint16_t Scale(uint32_t chunk) const {
    return kept_.scales[first_chunk_ + chunk];
  }
  __device__ uint32_t Position(uint32_t i) const {
    return kept_.positions[SlotOf(i)];
  }
  __device__ uint32_t Symbol(uint32_t i) const {
    return kept_.symbols[SlotOf(i)];
  }

  // The gap before entry i of a row that starts with entry `first` at position
  // `begin`, and how many adjacent entries a run beginning there has, up to
  // entry `end`.
  __device__ uint32_t Gap(uint32_t i, uint32_t first, uint32_t begin) const {
    return Position(i) - (i == first ? begin : Position(i - 1) + 1);
  }
  __device__ uint32_t Run(uint32_t i, uint32_t end) const {
    const uint32_t position = Position(i);
    uint32_t length = 1;
    while (i + length < end && Position(i + length) == position + length) {
      ++length;
    }
    return length;
  }

 private:
  __device__ size_t SlotOf(uint32_t i) const {
    uint32_t chunk = 0;
#pragma unroll 1  // It stands in many places, and unrolled in none it fits.
    while (begins_[chunk + 1] <= i) ++chunk;
    return (first_chunk_ + chunk) * kept_.slots + (i - begins_[chunk]);
  }

  const KeptChunks kept_;
  ChunkBegins& begins_;
  const size_t first_chunk_;
  const uint32_t entries_;
};

}  // namespace tensorlightning::cuda

#endif  // TENSORLIGHTNING_KERNELS_CUDA_GROUP_VIEW_CUH_
