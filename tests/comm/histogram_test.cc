// Tagged `threads`: runs under TSan.
#include "comm/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

namespace tensorlightning {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)
using std::chrono::nanoseconds;

TEST(Histogram, OfNothingIsZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.Quantile(0.5), 0ns);
  EXPECT_EQ(histogram.Mean(), 0ns);
  EXPECT_EQ(histogram.Max(), 0ns);
}

TEST(Histogram, FitsTheTwoKilobytesItPromises) {
  EXPECT_LE(sizeof(Histogram), 2048u + 64u);
}

TEST(Histogram, OfOneDurationGivesThatDuration) {
  for (const nanoseconds duration :
       std::vector<nanoseconds>{0ns, 300ns, 1us, 1337us, 5s, 1h, 10h}) {
    Histogram histogram;
    histogram.Add(duration);
    EXPECT_EQ(histogram.count(), 1u);
    for (const double share : {0.0, 0.5, 1.0}) {
      EXPECT_EQ(histogram.Quantile(share), duration);
    }
    EXPECT_EQ(histogram.Mean(), duration);
    EXPECT_EQ(histogram.Max(), duration);
  }
}

// For durations around every power of two and in between, beside a far longer
// one, so that the maximum does not help.
TEST(Histogram, IsAnUpperBoundAtMostAnEighthAbove) {
  std::vector<nanoseconds> durations;
  for (double us = 1; us <= 3600e6; us *= 1.01) {
    durations.emplace_back(static_cast<int64_t>(us * 1000));
  }
  for (int power = 0; power < 32; ++power) {
    const nanoseconds exact = 1us * (int64_t{1} << power);
    for (const nanoseconds d : {exact - 1ns, exact, exact + 1ns}) {
      if (d >= 1us) durations.push_back(d);
    }
  }
  for (const nanoseconds duration : durations) {
    Histogram histogram;
    histogram.Add(duration);
    histogram.Add(100h);
    const nanoseconds bound = histogram.Quantile(0.5);
    ASSERT_GE(bound, duration);
    ASSERT_LE(bound.count() * 8, duration.count() * 9);
  }
}

TEST(Histogram, TellsPowersOfTwoMicrosecondsExactly) {
  for (int power = 1; power < 32; ++power) {
    const nanoseconds duration = 1us * (int64_t{1} << power);
    Histogram histogram;
    histogram.Add(duration);
    histogram.Add(100h);
    EXPECT_EQ(histogram.Quantile(0.5), duration);
  }
}

TEST(Histogram, FindsQuantilesAsSortingDoes) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> latency(std::log(2e6), 1.5);
  for (const size_t size : {size_t{1}, size_t{2}, size_t{10}, size_t{5000}}) {
    Histogram histogram;
    std::vector<nanoseconds> sorted(size);
    nanoseconds total{0};
    for (nanoseconds& duration : sorted) {
      duration = nanoseconds(1000 + static_cast<int64_t>(latency(random)));
      total += duration;
      histogram.Add(duration);
    }
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(histogram.count(), size);
    EXPECT_EQ(histogram.Max(), sorted.back());
    EXPECT_EQ(histogram.Total(), total);
    EXPECT_EQ(histogram.Mean(), total / static_cast<int64_t>(size));
    for (const double share : {0.0, 0.25, 0.5, 0.75, 0.9375, 1.0}) {
      const auto rank = static_cast<size_t>(
          std::max(1.0, std::ceil(share * static_cast<double>(size))));
      const nanoseconds exact = sorted[rank - 1];
      const nanoseconds bound = histogram.Quantile(share);
      EXPECT_GE(bound, exact) << share << " of " << size;
      EXPECT_LE(bound.count() * 8, exact.count() * 9)
          << share << " of " << size;
    }
  }
}

TEST(Histogram, TakesSharesOutsideItsRangeForTheNearestEnd) {
  Histogram histogram;
  histogram.Add(1ms);
  histogram.Add(1s);
  EXPECT_EQ(histogram.Quantile(-1), histogram.Quantile(0));
  EXPECT_EQ(histogram.Quantile(std::nan("")), histogram.Quantile(0));
  EXPECT_EQ(histogram.Quantile(2), histogram.Quantile(1));
  EXPECT_LT(histogram.Quantile(0), 2ms);
  EXPECT_EQ(histogram.Quantile(1), 1s);
}

TEST(Histogram, CountsNegativeDurationsAsNone) {
  Histogram histogram;
  histogram.Add(-5s);
  EXPECT_EQ(histogram.count(), 1u);
  EXPECT_EQ(histogram.Quantile(1), 0ns);
  EXPECT_EQ(histogram.Mean(), 0ns);
}

TEST(Histogram, MergedIsAsIfAllHadBeenAddedToOne) {
  std::mt19937_64 random(2);
  Histogram left;
  Histogram right;
  Histogram both;
  for (int i = 0; i < 1000; ++i) {
    const nanoseconds duration(static_cast<int64_t>(random() % 10'000'000'000));
    (i % 3 == 0 ? left : right).Add(duration);
    both.Add(duration);
  }
  left.Merge(right);
  EXPECT_EQ(left.count(), both.count());
  EXPECT_EQ(left.Mean(), both.Mean());
  EXPECT_EQ(left.Max(), both.Max());
  for (int percent = 0; percent <= 100; ++percent) {
    EXPECT_EQ(left.Quantile(percent / 100.0), both.Quantile(percent / 100.0));
  }
}

TEST(Histogram, LosesNothingThatThreadsAddTogether) {
  constexpr int kThreads = 4;
  constexpr int kAdds = 50000;
  Histogram histogram;
  std::barrier start(kThreads + 1);
  std::atomic<int> finished{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      // Four buckets, so that threads meet.
      for (int i = 0; i < kAdds; ++i) histogram.Add(1us * (1 << (i % 4)));
      ++finished;
    });
  }
  start.arrive_and_wait();
  // A reader beside them sees a count and a maximum that agree.
  uint64_t seen = 0;
  do {
    const uint64_t count = histogram.count();
    EXPECT_GE(count, seen);
    seen = count;
    const nanoseconds median = histogram.Quantile(0.5);
    EXPECT_TRUE(median > 0ns || count == 0);
    EXPECT_LE(median, histogram.Max());
    Histogram copy;
    copy.Merge(histogram);
    EXPECT_GE(copy.count(), count);
  } while (finished < kThreads);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.count(), uint64_t{kThreads} * kAdds);
  EXPECT_EQ(histogram.Max(), 8us);
  EXPECT_EQ(histogram.Mean(), 3750ns);  // Of 1, 2, 4 and 8.
  EXPECT_EQ(histogram.Quantile(0.5), 2us);
}

}  // namespace
}  // namespace tensorlightning
