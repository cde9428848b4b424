// What the shims of CUDA's built-ins call: the door from a kernel, running on
// a fiber, into the block scheduler. Not for kernels or tests.
//
// All of it is compiled without TSan, so that the emulator's own book-keeping
// never looks like a race between CUDA threads; the edges that a barrier or a
// collective really gives are made explicitly (see sanitizers.h).
#ifndef KERNELS_CUDA_EMULATOR_RUNTIME_H_
#define KERNELS_CUDA_EMULATOR_RUNTIME_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/emulator/source.h"
#include "kernels/cuda/emulator/vector_types.h"

// Set by the scheduler before it resumes a thread. A block never changes its
// worker, so thread-local is per block.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

namespace tensorlightning::cuda::emulator::internal {

// Changes with every block; 0 outside kernels. SharedArray compares it to know
// that its contents belong to an earlier block.
extern constinit thread_local uint64_t block_serial;

// Waits for all threads of the block; returns how many came with `predicate`.
int SyncThreads(bool predicate, const Source& source);

enum class Collective : uint8_t {
  kSyncWarp,
  kBallot,
  kAny,
  kAll,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
};

// A lane's contribution: a predicate or a value's bits, and for shuffles the
// source lane or distance and the width.
struct Contribution {
  uint64_t bits = 0;
  int operand = 0;
  int width = warpSize;
};

// Waits for the lanes that `mask` names and returns this lane's result.
uint64_t Meet(Collective kind, unsigned mask, const Contribution& mine,
              const Source& source);

// Every atomic operation calls this: now and then another thread of the block
// runs first. Without it a spinning thread would never let others proceed.
void Preempt();
// Always lets the others run.
void Yield();

unsigned LaneMask();

[[noreturn]] void Trap(const Source& source);
[[noreturn]] void SharedOutOfBounds(size_t index, size_t size,
                                    const char* array);

// Fills memory with garbage made from the seed and the block.
void PoisonShared(void* begin, size_t bytes);
// Makes ASan report accesses to the bytes; nothing without ASan.
void ForbidAccess(void* begin, size_t bytes);

// A full fence. TSan does not model it: use acquire and release instead.
void Fence();

}  // namespace tensorlightning::cuda::emulator::internal

#endif  // KERNELS_CUDA_EMULATOR_RUNTIME_H_
