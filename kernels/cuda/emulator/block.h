// Schedules the threads of one block at a time on the calling worker thread.
//
// Rounds: all ready threads, in an order made from the seed, each run until it
// waits, yields or ends. When none is ready and some have not ended, the block
// is stuck, and the report says who waits where. The functions of runtime.h
// call in here from the running fiber.
#ifndef KERNELS_CUDA_EMULATOR_BLOCK_H_
#define KERNELS_CUDA_EMULATOR_BLOCK_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/emulator/emulator.h"
#include "kernels/cuda/emulator/fiber.h"
#include "kernels/cuda/emulator/grid.h"
#include "kernels/cuda/emulator/random.h"
#include "kernels/cuda/emulator/runtime.h"
#include "kernels/cuda/emulator/warp.h"

namespace tensorlightning::cuda::emulator {

class BlockRunner {
 public:
  explicit BlockRunner(GridRun& grid);

  // Runs the block to its end, or until the grid has failed.
  void Run(uint32_t block);

  // From here on: called on the running fiber.
  static BlockRunner* Current();
  int SyncThreads(bool predicate, const Source& source);
  uint64_t Meet(internal::Collective kind, unsigned mask,
                const internal::Contribution& mine, const Source& source);
  void Preempt();
  void Yield();
  unsigned LaneMask() const { return 1u << running_ % kLanes; }
  Random& random() { return random_; }
  // Stops the grid; the running thread never resumes.
  [[noreturn]] void Fail(ErrorKind kind, std::string message);
  void At(const Source& source) { threads_[running_].source = source; }

 private:
  enum class State : uint8_t { kReady, kBarrier, kMeeting, kEnded };
  struct Thread {
    BlockRunner* runner;
    State state;
    int meeting;    // while kMeeting
    Source source;  // the last collective or barrier
  };
  // Two generations: a thread may wait for the next one before all have left.
  struct Barrier {
    Source source;
    uint32_t first = 0;  // the thread that came first
    uint32_t generation = 0;
    uint32_t arrived = 0;
    int count = 0;
    int result[2] = {};
    void* cell[2] = {};
  };

  static void ThreadMain(void* thread);
  void Begin(uint32_t block);
  void RunRounds();
  void End();
  void Suspend() { (*fibers_)[running_].Suspend(); }
  void MakeReady(uint32_t thread);
  void Progress() { ++progress_; }
  bool Stalled();

  void ReportStuck();
  void ReportStalled();
  std::string Describe(uint32_t thread) const;
  std::string DescribeWaiting() const;
  uint3 ThreadIndex(uint32_t thread) const;
  void Report(uint32_t thread, ErrorKind kind, std::string message);

  GridRun& grid_;
  const uint32_t count_;  // threads
  FiberSet::Lease fibers_;
  Random random_{0};
  std::vector<Thread> threads_;
  std::vector<uint3> indices_;
  std::vector<Warp> warps_;
  std::vector<uint32_t> round_;
  std::vector<uint32_t> ready_;
  Barrier barrier_;
  uint32_t running_ = 0;
  uint32_t ended_ = 0;
  uint32_t until_preempt_ = 1;
  uint64_t progress_ = 0;

  uint64_t seen_progress_ = 0;  // of the whole grid, see Stalled
  uint32_t idle_rounds_ = 0;
  std::chrono::steady_clock::time_point last_progress_;
};

}  // namespace tensorlightning::cuda::emulator

#endif  // KERNELS_CUDA_EMULATOR_BLOCK_H_
