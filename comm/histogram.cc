#include "comm/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tensorlightning {
namespace {

// Buckets are counted in eighths of a microsecond: of the durations from 8 << e
// to 16 << e of them, each of eight buckets takes 1 << e. A bucket includes its
// upper end and not its lower, so that round durations are told exactly.
constexpr int64_t kEighthNs = 125;
constexpr uint64_t kEighths = 8;

size_t BucketOf(int64_t ns, size_t buckets) {
  const uint64_t eighths = std::max<uint64_t>(
      static_cast<uint64_t>(std::max<int64_t>(ns - 1, 0) / kEighthNs),
      kEighths);
  const auto power = static_cast<size_t>(std::bit_width(eighths)) -
                     static_cast<size_t>(std::bit_width(kEighths));
  const auto bucket =
      static_cast<size_t>(kEighths * power + (eighths >> power) - kEighths);
  return std::min(bucket, buckets - 1);
}

int64_t UpperNs(size_t bucket) {
  const uint64_t eighths = (kEighths + bucket % kEighths + 1)
                           << (bucket / kEighths);
  return static_cast<int64_t>(eighths) * kEighthNs;
}

void Raise(std::atomic<int64_t>& max, int64_t value) {
  int64_t seen = max.load(std::memory_order_relaxed);
  while (seen < value &&
         !max.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

// Counts are the last to be written and the first to be read, so that who sees
// a count sees a maximum that is not below it.
void Histogram::Add(std::chrono::nanoseconds duration) {
  const int64_t ns = std::max<int64_t>(duration.count(), 0);
  Raise(max_ns_, ns);
  total_ns_.fetch_add(ns, std::memory_order_relaxed);
  counts_[BucketOf(ns, kBuckets)].fetch_add(1, std::memory_order_release);
}

void Histogram::Merge(const Histogram& other) {
  std::array<uint64_t, kBuckets> counts;
  for (size_t i = 0; i < kBuckets; ++i) {
    counts[i] = other.counts_[i].load(std::memory_order_acquire);
  }
  total_ns_.fetch_add(other.total_ns_.load(std::memory_order_relaxed),
                      std::memory_order_relaxed);
  Raise(max_ns_, other.max_ns_.load(std::memory_order_relaxed));
  for (size_t i = 0; i < kBuckets; ++i) {
    if (counts[i] == 0) continue;
    counts_[i].fetch_add(counts[i], std::memory_order_release);
  }
}

uint64_t Histogram::count() const {
  uint64_t sum = 0;
  for (const auto& count : counts_) {
    sum += count.load(std::memory_order_acquire);
  }
  return sum;
}

std::chrono::nanoseconds Histogram::Quantile(double share) const {
  // Read once: the counts go on growing, and the rank is of those read.
  std::array<uint64_t, kBuckets> counts;
  uint64_t sum = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    counts[i] = counts_[i].load(std::memory_order_acquire);
    sum += counts[i];
  }
  if (sum == 0) return std::chrono::nanoseconds(0);
  const double wanted = std::ceil(share * static_cast<double>(sum));
  const uint64_t rank = wanted >= static_cast<double>(sum) ? sum
                        : wanted > 1 ? static_cast<uint64_t>(wanted)
                                     : 1;
  const std::chrono::nanoseconds max = Max();
  uint64_t below = 0;
  // The last bucket has no end: whoever falls into it gets the maximum.
  for (size_t i = 0; i + 1 < kBuckets; ++i) {
    below += counts[i];
    if (below >= rank) {
      return std::min(std::chrono::nanoseconds(UpperNs(i)), max);
    }
  }
  return max;
}

std::chrono::nanoseconds Histogram::Mean() const {
  const uint64_t n = count();
  if (n == 0) return std::chrono::nanoseconds(0);
  return Total() / static_cast<int64_t>(n);
}

std::chrono::nanoseconds Histogram::Total() const {
  return std::chrono::nanoseconds(total_ns_.load(std::memory_order_relaxed));
}

std::chrono::nanoseconds Histogram::Max() const {
  return std::chrono::nanoseconds(max_ns_.load(std::memory_order_relaxed));
}

}  // namespace tensorlightning
