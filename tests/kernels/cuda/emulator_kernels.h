// Small kernels for the emulator's own tests, each behind a host function that
// allocates, copies, launches and copies back. Compiled by g++ for the emulator
// and by nvcc for real devices from the same emulator_kernels.cu.
#ifndef TESTS_KERNELS_CUDA_EMULATOR_KERNELS_H_
#define TESTS_KERNELS_CUDA_EMULATOR_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

namespace tensorlightning::cuda {

// Sums of blocks of 256 through a tree in shared memory. Without barriers the
// tree's levels race.
cudaError_t BlockSums(const std::vector<int>& x, bool barriers,
                      std::vector<int>* sums);

// Inclusive sums within each warp, by shuffles.
cudaError_t WarpScan(const std::vector<int>& x, std::vector<int>* sums);

// Positions of the values above the threshold, in order, in one pass: ballots
// within a warp, a scan over warps, decoupled look-back over blocks.
cudaError_t Compact(const std::vector<int>& x, int threshold,
                    std::vector<uint32_t>* positions);

// Counts of x[i] mod 64, first in shared memory, then in global memory.
cudaError_t Histogram(const std::vector<uint32_t>& x,
                      std::vector<uint32_t>* bins);

// Each lane hands its value to its neighbour through shared memory. Without
// __syncwarp they race.
cudaError_t RotateLanes(const std::vector<int>& x, bool sync,
                        std::vector<int>* rotated);

// Every block writes its number to one cell: atomically, or racing.
cudaError_t LargestBlock(unsigned blocks, bool atomic, uint32_t* largest);

// What shared memory holds when nobody has written to it.
cudaError_t ReadUninitialised(std::vector<uint32_t>* words);

// Bits that each lane gets from votes and shuffles with widths and bounds.
cudaError_t Collectives(std::vector<uint32_t>* words);

// Reads one element past the end of device memory.
cudaError_t ReadPastEnd();

// Kernels that a GPU would hang on or leave undefined.
enum class Mistake {
  kThreadEndsBeforeBarrier,
  kBarrierInOneBranch,
  kBarrierInBothBranches,
  kLaneWaitsAtBarrier,
  kLaneEndsBeforeShuffle,
  kLanesThatDoNotExist,
  kDifferentCollectives,
  kMaskWithoutSelf,
  kShuffleFromOutsideMask,
  kWidthOfThree,
  kSharedIndexTooLarge,
  kSpinOnLaterBlock,
  kTrap,
};
cudaError_t Make(Mistake mistake);

}  // namespace tensorlightning::cuda

#endif  // TESTS_KERNELS_CUDA_EMULATOR_KERNELS_H_
