// Barriers, votes and shuffles as CUDA names them. Each passes its line on, for
// reports. __reduce_*_sync and __match_*_sync are left out: the former need
// sm_80, and we compile for sm_75.
//
// Stricter than CUDA: a lane that has ended, or that the block does not have,
// may not be named in a mask, and no thread may end before the others' last
// __syncthreads.
#ifndef KERNELS_CUDA_EMULATOR_COLLECTIVES_H_
#define KERNELS_CUDA_EMULATOR_COLLECTIVES_H_

// The names and types are CUDA's.
// NOLINTBEGIN(bugprone-reserved-identifier,google-build-using-namespace)

#include <cstdint>
#include <cstring>

#include "kernels/cuda/emulator/runtime.h"

#define TL_EMULATOR_HERE                         \
  tensorlightning::cuda::emulator::Source here = \
      tensorlightning::cuda::emulator::Source::Here()

inline void __syncthreads(TL_EMULATOR_HERE) {
  tensorlightning::cuda::emulator::internal::SyncThreads(false, here);
}
inline int __syncthreads_count(int predicate, TL_EMULATOR_HERE) {
  return tensorlightning::cuda::emulator::internal::SyncThreads(predicate != 0,
                                                                here);
}
inline int __syncthreads_or(int predicate, TL_EMULATOR_HERE) {
  return __syncthreads_count(predicate, here) != 0;
}
inline int __syncthreads_and(int predicate, TL_EMULATOR_HERE) {
  return __syncthreads_count(predicate == 0, here) == 0;
}

namespace tensorlightning::cuda::emulator::internal {

inline unsigned Vote(Collective kind, unsigned mask, int predicate,
                     const Source& here) {
  return static_cast<unsigned>(
      Meet(kind, mask, {.bits = predicate != 0 ? 1u : 0u}, here));
}

template <class T>
T Shuffle(Collective kind, unsigned mask, T value, int operand, int width,
          const Source& here) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "CUDA shuffles 4 or 8 bytes");
  Contribution mine{.operand = operand, .width = width};
  std::memcpy(&mine.bits, &value, sizeof(T));
  const uint64_t bits = Meet(kind, mask, mine, here);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace tensorlightning::cuda::emulator::internal

inline void __syncwarp(unsigned mask = 0xffffffffu, TL_EMULATOR_HERE) {
  using namespace tensorlightning::cuda::emulator::internal;
  Meet(Collective::kSyncWarp, mask, {}, here);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, TL_EMULATOR_HERE) {
  using namespace tensorlightning::cuda::emulator::internal;
  return Vote(Collective::kBallot, mask, predicate, here);
}
inline int __any_sync(unsigned mask, int predicate, TL_EMULATOR_HERE) {
  using namespace tensorlightning::cuda::emulator::internal;
  return static_cast<int>(Vote(Collective::kAny, mask, predicate, here));
}
inline int __all_sync(unsigned mask, int predicate, TL_EMULATOR_HERE) {
  using namespace tensorlightning::cuda::emulator::internal;
  return static_cast<int>(Vote(Collective::kAll, mask, predicate, here));
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize,
              TL_EMULATOR_HERE) {
  using namespace tensorlightning::cuda::emulator::internal;
  return Shuffle(Collective::kShuffle, mask, value, lane, width, here);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 TL_EMULATOR_HERE) {
  using namespace tensorlightning::cuda::emulator::internal;
  return Shuffle(Collective::kShuffleUp, mask, value, static_cast<int>(delta),
                 width, here);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   TL_EMULATOR_HERE) {
  using namespace tensorlightning::cuda::emulator::internal;
  return Shuffle(Collective::kShuffleDown, mask, value, static_cast<int>(delta),
                 width, here);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  TL_EMULATOR_HERE) {
  using namespace tensorlightning::cuda::emulator::internal;
  return Shuffle(Collective::kShuffleXor, mask, value, lane_mask, width, here);
}

// The calling lane alone: the least convergence that CUDA allows, so a kernel
// that relies on more is wrong here too.
inline unsigned __activemask() {
  return tensorlightning::cuda::emulator::internal::LaneMask();
}

[[noreturn]] inline void __trap(TL_EMULATOR_HERE) {
  tensorlightning::cuda::emulator::internal::Trap(here);
}

inline void __nanosleep(unsigned) {
  tensorlightning::cuda::emulator::internal::Yield();
}

// Real fences, but TSan does not model them: publish data with the release and
// acquire operations of cuda::atomic_ref, or a correct kernel looks racy.
inline void __threadfence() {
  tensorlightning::cuda::emulator::internal::Fence();
}
inline void __threadfence_block() {
  tensorlightning::cuda::emulator::internal::Fence();
}

#undef TL_EMULATOR_HERE

// NOLINTEND(bugprone-reserved-identifier,google-build-using-namespace)

#endif  // KERNELS_CUDA_EMULATOR_COLLECTIVES_H_
