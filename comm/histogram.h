// A histogram of durations that any thread may add to and any other may read,
// without locks: buckets an eighth of a power of two wide, from 1 microsecond
// to over an hour; 2 KB.
#ifndef TENSORLIGHTNING_COMM_HISTOGRAM_H_
#define TENSORLIGHTNING_COMM_HISTOGRAM_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tensorlightning {

class Histogram {
 public:
  void Add(std::chrono::nanoseconds duration);
  // Adds all of another's counts to this one's.
  void Merge(const Histogram& other);

  uint64_t count() const;
  // An upper bound, at most 1/8 above the true value, of the share-th quantile,
  // share in [0, 1]; 0 when nothing was added.
  std::chrono::nanoseconds Quantile(double share) const;
  std::chrono::nanoseconds Mean() const;
  // The sum of everything that was added.
  std::chrono::nanoseconds Total() const;
  std::chrono::nanoseconds Max() const;

 private:
  static constexpr size_t kBuckets = 256;

  std::array<std::atomic<uint64_t>, kBuckets> counts_{};
  std::atomic<int64_t> total_ns_{0};
  std::atomic<int64_t> max_ns_{0};
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_HISTOGRAM_H_
