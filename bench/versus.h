// One kernel beside its roof, as a benchmark of Google's library.
//
//   void Prune(benchmark::State& state) {
//     TakeTurns(state, Clock::kThread, {.bytes = 12 * n}, reset,
//               [&] { ...roof... }, [&] { ...kernel... });
//   }
//   TL_BENCH_VERSUS(Prune, "prune", kTurns);
//
// Memory bandwidth of a shared machine swings by a factor of two within
// seconds, and differs from one allocation to the next. So both work on the
// same memory and take turns, milliseconds apart, and the counter "ratio" is
// the median of roof time by kernel time over the turns.
#ifndef TENSORLIGHTNING_BENCH_VERSUS_H_
#define TENSORLIGHTNING_BENCH_VERSUS_H_

#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "bench/measure.h"

namespace tensorlightning::bench {

enum class Clock : clockid_t {
  kThread = CLOCK_THREAD_CPUTIME_ID,  // Being interrupted doesn't count.
  kWall = CLOCK_MONOTONIC,            // For several threads.
};

// What one call moves or applies: whichever its rate is to be given in.
struct Work {
  double bytes = 0;
  double entries = 0;
};

inline constexpr int kTurns = 15;

#define TL_BENCH_VERSUS(function, name, turns) \
  BENCHMARK(function)                          \
      ->Name(name)                             \
      ->Unit(benchmark::kMillisecond)          \
      ->UseManualTime()                        \
      ->Iterations(turns)

template <typename Function>
double Milliseconds(Clock clock, Function function) {
  const double start = Seconds(static_cast<clockid_t>(clock));
  function();
  benchmark::ClobberMemory();
  return (Seconds(static_cast<clockid_t>(clock)) - start) * 1e3;
}

// `reset` comes before each of the two, off the clock.
template <typename Reset, typename Roof, typename Kernel>
void TakeTurns(benchmark::State& state, Clock clock, Work work, Reset reset,
               Roof roof, Kernel kernel) {
  std::vector<double> roofs;
  std::vector<double> kernels;
  std::vector<double> ratios;
  const auto turn = [&] {
    reset();
    roofs.push_back(Milliseconds(clock, roof));
    reset();
    kernels.push_back(Milliseconds(clock, kernel));
    ratios.push_back(roofs.back() / kernels.back());
  };
  turn();  // Warms up: workspaces grow, pages are touched.
  roofs.clear();
  kernels.clear();
  ratios.clear();
  for (auto _ : state) {
    turn();
    state.SetIterationTime(kernels.back() * 1e-3);
  }
  state.counters["ms"] = Median(kernels);
  state.counters["roof_ms"] = Median(roofs);
  state.counters["ratio"] = Median(ratios);
  state.counters["bytes"] = work.bytes;
  state.counters["entries"] = work.entries;
}

}  // namespace tensorlightning::bench

#endif  // TENSORLIGHTNING_BENCH_VERSUS_H_
