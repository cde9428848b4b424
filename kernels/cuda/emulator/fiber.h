// A stack to run a CUDA thread on, and sets of them that are kept and reused.
//
// The block scheduler calls Start and Resume from its worker thread; the code
// on the fiber calls Suspend. A fiber stays on the thread that started it until
// it ends or is abandoned. Under TSan each fiber is a thread of its own that
// does not synchronise when switched to.
#ifndef KERNELS_CUDA_EMULATOR_FIBER_H_
#define KERNELS_CUDA_EMULATOR_FIBER_H_

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tensorlightning::cuda::emulator {

class Fiber {
 public:
  explicit Fiber(size_t number);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next Resume enters `entry(argument)`, which must not throw.
  void Start(void (*entry)(void*), void* argument);
  // Runs the fiber until it suspends or ends.
  void Resume();
  // On the fiber: goes back to the Resume that entered it.
  void Suspend();
  // Forgets what was suspended here, without running destructors. What the
  // fiber did is released to the cell.
  void Abandon(void* cell);

 private:
  static void Main(boost::context::detail::transfer_t transfer) noexcept;

  char* stack_;  // above one guard page
  size_t colour_;
  boost::context::detail::fcontext_t context_ = nullptr;
  boost::context::detail::fcontext_t caller_ = nullptr;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
  void* tsan_fiber_ = nullptr;
  void* tsan_caller_ = nullptr;
};

// The fibers of one block after another. Under TSan each block happens before
// the next one on the same set, since they use the same stacks: its threads
// acquire one cell and release to the other, for the next block. (With a single
// cell, a thread that ends early would precede those that start late.)
class FiberSet {
 public:
  // Taken from, and on destruction given back to, a pool of the process.
  struct GiveBack {
    void operator()(FiberSet* set) const;
  };
  using Lease = std::unique_ptr<FiberSet, GiveBack>;
  static Lease Take(size_t fibers);

  Fiber& operator[](size_t i) { return *fibers_[i]; }
  void* previous_cell() { return &cells_[blocks_ % 2]; }
  void* next_cell() { return &cells_[(blocks_ + 1) % 2]; }
  void NextBlock() { ++blocks_; }

 private:
  std::vector<std::unique_ptr<Fiber>> fibers_;
  uint64_t blocks_ = 0;
  uint64_t cells_[2] = {};
};

}  // namespace tensorlightning::cuda::emulator

#endif  // KERNELS_CUDA_EMULATOR_FIBER_H_
