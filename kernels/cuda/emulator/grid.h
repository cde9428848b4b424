// One launch: its shape and work, the order of its blocks, and the first error.
// RunGrid (grid.cc) owns it; the workers' blocks share it.
#ifndef KERNELS_CUDA_EMULATOR_GRID_H_
#define KERNELS_CUDA_EMULATOR_GRID_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/emulator/emulator.h"

namespace tensorlightning::cuda::emulator {

struct GridRun {
  Options options;
  internal::Work work;
  std::string kernel;
  dim3 grid;
  dim3 block;
  uint64_t seed = 0;  // of this launch

  std::vector<uint32_t> order;  // of linear block numbers
  std::atomic<size_t> next{0};
  // Counts barriers, collectives and ends; standing still is a stall.
  std::atomic<uint64_t> progress{0};

  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::optional<Error> error;  // the first one; guarded by mutex

  // TSan's edges from the launching thread to the kernel and back.
  char begin_cell = 0;
  char end_cell = 0;

  void Fail(Error first) {
    const std::lock_guard lock(mutex);
    if (!error) error = std::move(first);
    failed = true;
  }
};

}  // namespace tensorlightning::cuda::emulator

#endif  // KERNELS_CUDA_EMULATOR_GRID_H_
