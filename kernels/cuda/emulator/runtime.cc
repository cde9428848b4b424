#include "kernels/cuda/emulator/runtime.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "kernels/cuda/emulator/block.h"
#include "kernels/cuda/emulator/sanitizers.h"

namespace tensorlightning::cuda::emulator::internal {

int SyncThreads(bool predicate, const Source& source) {
  return BlockRunner::Current()->SyncThreads(predicate, source);
}

uint64_t Meet(Collective kind, unsigned mask, const Contribution& mine,
              const Source& source) {
  return BlockRunner::Current()->Meet(kind, mask, mine, source);
}

// Host code may use the same atomics; then there is no block.
void Preempt() {
  if (BlockRunner* block = BlockRunner::Current()) block->Preempt();
}

void Yield() {
  if (BlockRunner* block = BlockRunner::Current()) block->Yield();
}

unsigned LaneMask() { return BlockRunner::Current()->LaneMask(); }

void Trap(const Source& source) {
  BlockRunner* block = BlockRunner::Current();
  if (block == nullptr) std::abort();
  block->At(source);
  block->Fail(ErrorKind::kTrap, "__trap()");
}

void SharedOutOfBounds(size_t index, size_t size, const char* array) {
  BlockRunner* block = BlockRunner::Current();
  if (block == nullptr) std::abort();
  block->Fail(ErrorKind::kSharedOutOfBounds,
              "after that line, index " + std::to_string(index) + " of " +
                  std::to_string(size) + " in " + array);
}

void PoisonShared(void* begin, size_t bytes) {
  BlockRunner* block = BlockRunner::Current();
  if (block != nullptr) block->random().Fill(begin, bytes);
}

void ForbidAccess(void* begin, size_t bytes) {
  if (AsanActive()) __asan_poison_memory_region(begin, bytes);
}

void Fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

}  // namespace tensorlightning::cuda::emulator::internal
