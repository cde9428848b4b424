// What every benchmark measures with: the system's clocks, and medians.
#ifndef TENSORLIGHTNING_BENCH_MEASURE_H_
#define TENSORLIGHTNING_BENCH_MEASURE_H_

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <vector>

namespace tensorlightning::bench {

// CLOCK_MONOTONIC; CLOCK_THREAD_CPUTIME_ID, on which being interrupted doesn't
// count; another process's, from clock_getcpuclockid().
inline double Seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

inline double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tensorlightning::bench

#endif  // TENSORLIGHTNING_BENCH_MEASURE_H_
