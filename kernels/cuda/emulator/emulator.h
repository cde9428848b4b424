// Executes CUDA kernels on the CPU: one fiber per CUDA thread, a block on one
// worker thread, blocks in an order that the seed decides. Kernels reach it
// through Launch() of kernels/cuda/launch.h; tests configure it here.
//
// Promises: the same seed with one worker gives the same schedule. A program
// that a GPU would hang on or leave undefined (see ErrorKind) ends with an
// Error that names kernel, block, thread and source line. README.md in this
// folder says what is modelled and what is not.
#ifndef KERNELS_CUDA_EMULATOR_EMULATOR_H_
#define KERNELS_CUDA_EMULATOR_EMULATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/cuda/emulator/host_api.h"
#include "kernels/cuda/emulator/source.h"
#include "kernels/cuda/emulator/vector_types.h"

namespace tensorlightning::cuda::emulator {

struct Options {
  // Blocks that run at once: the device "holds" this many resident blocks.
  int workers = 1;
  // Decides the order of blocks, the order in which threads of a block resume,
  // and the garbage in fresh memory. 0 keeps blocks and threads in order.
  uint64_t seed = 0;
  // 0 makes cudaGetDeviceCount fail as it does without a device.
  int devices = 1;
  // cudaMalloc fails beyond this many bytes in use.
  size_t memory_bytes = std::numeric_limits<size_t>::max();
  // A grid in which no thread passes a barrier, a collective or its end for
  // this long is taken to spin for good.
  std::chrono::milliseconds stall_limit{20000};
};

// For the launches that follow, of every thread of the process.
void Configure(const Options& options);
Options CurrentOptions();

enum class ErrorKind {
  kDivergentBarrier,   // __syncthreads that not all threads of the block reach
  kAbsentLane,         // a collective whose mask names a lane that never comes
  kMaskWithoutSelf,    // a lane calls a collective with a mask without itself
  kLaneOutsideMask,    // a shuffle reads a lane that the mask does not name
  kBadShuffleWidth,    // not a power of two from 1 to 32
  kSharedOutOfBounds,  // SharedArray index past the end
  kStalled,            // spins on something that cannot happen
  kTrap,               // __trap()
};

struct Error {
  ErrorKind kind;
  std::string kernel;
  uint3 block;
  uint3 thread;
  // The collective, or else the last one that the thread passed.
  std::string source;
  // One sentence, then where every kind of waiting thread stands.
  std::string message;

  std::string ToString() const;
};

// Runs on the thread that launched, after all workers have stopped. It may
// throw. If it returns, Launch() returns cudaErrorLaunchFailure. The default
// (also for an empty function) prints the error to stderr and aborts.
using ErrorHandler = std::function<void(const Error&)>;
void SetErrorHandler(ErrorHandler handler);

// True in a build with ThreadSanitizer, which then sees every CUDA thread as a
// thread of its own: a missing __syncthreads or __syncwarp is a reported race.
bool RaceDetection();

// A grid's shape, and where it was launched: errors name that line.
struct Grid {
  Grid(dim3 shape,  // NOLINT(google-explicit-constructor)
       Source where = Source::Here())
      : blocks(shape), source(where) {}
  Grid(unsigned count,  // NOLINT(google-explicit-constructor)
       Source where = Source::Here())
      : blocks(count), source(where) {}

  dim3 blocks;
  Source source;
};

namespace internal {

// What every CUDA thread runs: body(context). `kernel` is only for its name.
struct Work {
  void (*body)(const void* context);
  const void* context;
  void* kernel;
};

cudaError_t RunGrid(const Grid& grid, dim3 block, const Work& work);

}  // namespace internal

// Runs the kernel to its end; streams need no queue, since everything is done
// when the call returns.
template <class... P, class... A>
cudaError_t Run(void (*kernel)(P...), const Grid& grid, dim3 block,
                A&&... args) {
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> parameters;
  };
  const Call call{kernel, std::tuple<P...>(std::forward<A>(args)...)};
  const auto body = [](const void* context) {
    const Call& shared = *static_cast<const Call*>(context);
    std::apply(shared.kernel, shared.parameters);
  };
  return internal::RunGrid(grid, block,
                           {body, &call, reinterpret_cast<void*>(kernel)});
}

}  // namespace tensorlightning::cuda::emulator

#endif  // KERNELS_CUDA_EMULATOR_EMULATOR_H_
