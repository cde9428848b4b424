// A moment after which somebody has waited long enough. One thread sets it,
// others look.
#ifndef TENSORLIGHTNING_COMM_TRANSPORT_DEADLINE_H_
#define TENSORLIGHTNING_COMM_TRANSPORT_DEADLINE_H_

#include <atomic>
#include <chrono>
#include <limits>

namespace tensorlightning {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  void Set(Clock::duration patience) {
    const Clock::time_point until = Clock::now() + patience;
    until_.store(until.time_since_epoch().count(), std::memory_order_relaxed);
  }
  void Clear() { until_.store(kNever, std::memory_order_relaxed); }
  bool HasPassed(Clock::time_point now) const {
    return now.time_since_epoch().count() >
           until_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr Clock::rep kNever = std::numeric_limits<Clock::rep>::max();
  std::atomic<Clock::rep> until_{kNever};
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TRANSPORT_DEADLINE_H_
