#include "kernels/cuda/emulator/grid.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "kernels/cuda/emulator/block.h"
#include "kernels/cuda/emulator/sanitizers.h"

namespace tensorlightning::cuda::emulator {
namespace {

constexpr uint64_t kMaxThreadsPerBlock = 1024;
constexpr uint64_t kMaxBlocks = uint64_t{1} << 31;

struct Settings {
  std::mutex mutex;
  Options options;
  ErrorHandler handler;
  uint64_t launches = 0;  // since Configure: a seed repeats its schedules
};

// Only symbols that the dynamic linker knows have names (-rdynamic); the line
// of the launch is always there.
std::string KernelName(void* kernel, const Source& source) {
  std::string name = "kernel";
  Dl_info info;
  if (dladdr(kernel, &info) != 0 && info.dli_sname != nullptr) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(
        abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status),
        &std::free);
    name = status == 0 ? text.get() : info.dli_sname;
  }
  return name + " launched at " + source.file + ":" +
         std::to_string(source.line);
}

// Passes one worker's place from context to context, so that of its several
// threads one runs at a time, in turn.
class Turns {
 public:
  explicit Turns(size_t contexts) : contexts_(contexts) {}
  void WaitFor(size_t context) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == context; });
  }
  void Pass() {
    const std::lock_guard lock(mutex_);
    turn_ = (turn_ + 1) % contexts_;
    changed_.notify_all();
  }

 private:
  const size_t contexts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t turn_ = 0;
};

bool RunNextBlock(GridRun& run, BlockRunner& runner) {
  const size_t i = run.next++;
  if (run.failed || i >= run.order.size()) return false;
  runner.Run(run.order[i]);
  return true;
}

void RunWorkers(GridRun& run) {
  const size_t workers = std::min<size_t>(
      static_cast<size_t>(std::max(run.options.workers, 1)), run.order.size());
  if (workers == 1 && !TsanActive()) {
    BlockRunner runner(run);
    while (RunNextBlock(run, runner)) {
    }
    return;
  }
  // TSan sees consecutive blocks of one thread as ordered, for they share its
  // stacks and its __shared__ memory. So a single worker alternates between two
  // threads, and neighbouring blocks can still race.
  const size_t contexts = TsanActive() && workers == 1 ? 2 : 1;
  Turns turns(contexts);
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < workers * contexts; ++t) {
    threads.emplace_back([&run, &turns, contexts, t] {
      BlockRunner runner(run);
      for (bool more = true; more;) {
        if (contexts > 1) turns.WaitFor(t);
        more = RunNextBlock(run, runner);
        if (contexts > 1) turns.Pass();
      }
    });
  }
}

void PrintAndAbort(const Error& error) {
  std::fprintf(stderr, "%s\n", error.ToString().c_str());
  std::abort();
}

bool Acceptable(dim3 grid, dim3 block) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMaxThreadsPerBlock || block.z > 64) {
    return false;
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return false;
  if (grid.y > 65535 || grid.z > 65535) return false;
  return uint64_t{grid.x} * grid.y * grid.z < kMaxBlocks;
}

}  // namespace

void Configure(const Options& options) {
  auto& settings = Only<Settings>();
  const std::lock_guard lock(settings.mutex);
  settings.options = options;
  settings.launches = 0;
}

Options CurrentOptions() {
  auto& settings = Only<Settings>();
  const std::lock_guard lock(settings.mutex);
  return settings.options;
}

void SetErrorHandler(ErrorHandler handler) {
  auto& settings = Only<Settings>();
  const std::lock_guard lock(settings.mutex);
  settings.handler = std::move(handler);
}

bool RaceDetection() { return TsanActive(); }

cudaError_t internal::RunGrid(const Grid& grid, dim3 block, const Work& work) {
  if (!Acceptable(grid.blocks, block)) {
    return internal::Remember(cudaErrorInvalidConfiguration);
  }
  GridRun run;
  ErrorHandler handler;
  {
    auto& settings = Only<Settings>();
    const std::lock_guard lock(settings.mutex);
    run.options = settings.options;
    handler = settings.handler;
    run.seed = Random(run.options.seed ^ (++settings.launches << 32)).Next();
  }
  run.work = work;
  run.kernel = KernelName(work.kernel, grid.source);
  run.grid = grid.blocks;
  run.block = block;
  run.order.resize(size_t{run.grid.x} * run.grid.y * run.grid.z);
  std::iota(run.order.begin(), run.order.end(), 0u);
  if (run.options.seed != 0) Random(run.seed).Shuffle(run.order);

  Release(&run.begin_cell);
  RunWorkers(run);
  Acquire(&run.end_cell);

  if (!run.error) return cudaSuccess;
  if (handler == nullptr) handler = PrintAndAbort;
  internal::Remember(cudaErrorLaunchFailure);
  handler(*run.error);
  return cudaErrorLaunchFailure;
}

}  // namespace tensorlightning::cuda::emulator
