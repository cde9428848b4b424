// The fused steps of worker and aggregator, beside loops that move the same
// bytes.
#include <algorithm>
#include <span>
#include <thread>
#include <vector>

#include "bench/data.h"
#include "bench/versus.h"
#include "kernels/exchange.h"

namespace tensorlightning::bench {
namespace {

// Three vectors read, two written.
constexpr double kWorkerBytesPerEntry = 20;
// Two vectors read. (How much a reply writes depends on its density.)
constexpr double kReplyBytesPerEntry = 8;

TL_BENCH_ROOF void Triad(float* __restrict x, const float* __restrict c,
                         float* __restrict r, size_t n, float alpha) {
  for (size_t i = 0; i < n; ++i) {
    const float t = alpha * (x[i] - c[i]);
    x[i] -= t;
    r[i] += t;
  }
}

// Many sums, so that the loop waits for memory and not for an addition.
TL_BENCH_ROOF float SumOfDifferences(const float* __restrict a,
                                     const float* __restrict b, size_t n) {
  constexpr size_t kSums = 64;
  float sums[kSums] = {};
  for (size_t i = 0; i + kSums <= n; i += kSums) {
    for (size_t j = 0; j < kSums; ++j) sums[j] += a[i + j] - b[i + j];
  }
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

// A worker's vectors.
class Worker {
 public:
  explicit Worker(std::span<const float> data)
      : data_(data),
        x_(data.begin(), data.end()),
        c_(data.size()),
        r_(data.size()),
        out_(compression_.MaxBytes(data.size())) {}

  void Train() { bench::Train(x_, data_, ++steps_); }
  // Chunk-wise top-k at 1%, 4 bits, bytes out.
  void Exchange() {
    const auto emitted =
        WorkerStep(x_, c_, r_, {kBeta, kBeta}, compression_, workspace_, out_);
    if (!emitted.ok()) std::abort();
  }
  void MoveTheSameBytes() {
    Triad(x_.data(), c_.data(), r_.data(), x_.size(), kBeta);
  }
  Work Moved() const {
    return {.bytes = kWorkerBytesPerEntry * static_cast<double>(x_.size())};
  }

 private:
  static constexpr float kBeta = 0.225f;

  Compression compression_{SelectionRule::ChunkTopK(0.01), ValueCode::kBits4};
  std::span<const float> data_;
  std::vector<float> x_, c_, r_;
  std::vector<std::byte> out_;
  Workspace workspace_;
  size_t steps_ = 0;
};

void Fused(benchmark::State& state) {
  Worker worker(Gradient());
  TakeTurns(
      state, Clock::kThread, worker.Moved(), [&] { worker.Train(); },
      [&] { worker.MoveTheSameBytes(); }, [&] { worker.Exchange(); });
}
TL_BENCH_VERSUS(Fused, "fused_1pct", kTurns);

// Two shards by one thread after the other, and by two threads at once.
void Threads(benchmark::State& state) {
  const auto all = std::span(Gradient());
  Worker first(all.first(all.size() / 2));
  Worker second(all.last(all.size() / 2));
  TakeTurns(
      state, Clock::kWall, {.bytes = 2 * first.Moved().bytes},
      [&] {
        first.Train();
        second.Train();
      },
      [&] {
        first.Exchange();
        second.Exchange();
      },
      [&] {
        std::thread other([&] { second.Exchange(); });
        first.Exchange();
        other.join();
      });
}
TL_BENCH_VERSUS(Threads, "threads2", kTurns);

void Reply(benchmark::State& state) {
  const Compression compression{SelectionRule::ChunkTopK(0.03),
                                ValueCode::kBits4};
  const std::vector<float>& centre = Gradient();
  std::vector<float> view(centre.size());
  std::vector<std::byte> out(compression.MaxBytes(view.size()));
  Workspace workspace;
  TakeTurns(
      state, Clock::kThread,
      {.bytes = kReplyBytesPerEntry * static_cast<double>(view.size())},
      [&] { std::fill(view.begin(), view.end(), 0.0f); },
      [&] {
        benchmark::DoNotOptimize(
            SumOfDifferences(centre.data(), view.data(), view.size()));
      },
      [&] {
        if (!MakeReply(centre, view, compression, workspace, out).ok()) {
          std::abort();
        }
      });
}
TL_BENCH_VERSUS(Reply, "reply_3pct", kTurns);

}  // namespace
}  // namespace tensorlightning::bench
