// Where and how the parts run.
#ifndef TENSORLIGHTNING_BENCH_COMM_RUN_H_
#define TENSORLIGHTNING_BENCH_COMM_RUN_H_

#include <sched.h>

#include <future>
#include <utility>

#include "comm/transport/asio.h"

namespace tensorlightning::bench {

// Keeps the calling thread, and those that it will start, on one core: each end
// of a connection gets one of its own, as if they were two machines. Left to
// itself the scheduler may put both on one, where they never run at once but
// need no signals between cores; whether it does would decide what is measured.
// Does nothing where there is no such core.
inline constexpr int kClientCore = 0;
inline constexpr int kServerCore = 1;
inline void StayOnCore(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  (void)::sched_setaffinity(0, sizeof(cores), &cores);
}

// Runs a coroutine on the strand, whose thread must be another, and waits for
// what it returns.
template <typename T>
T RunToEnd(const Strand& strand, Awaitable<T> coroutine) {
  std::promise<T> promise;
  const auto run = [&]() -> Awaitable<void> {
    T result = co_await std::move(coroutine);
    promise.set_value(std::move(result));
  };
  asio::co_spawn(strand, run, asio::detached);
  return promise.get_future().get();
}

}  // namespace tensorlightning::bench

#endif  // TENSORLIGHTNING_BENCH_COMM_RUN_H_
