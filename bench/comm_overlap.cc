// What exchanges under way cost the thread that computes.
//
// The loop trains one layer on samples it makes up: per row of the weights a
// product with every sample of the batch, then a step of least squares. It runs
// in turns alone and with Step() after every step of it. What counts is its
// steps per second of its own thread on the processor: Step(), and caches that
// comm's threads have spoilt, count against it; waiting for a core doesn't.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/comm.h"
#include "bench/comm_worker.h"
#include "bench/data.h"
#include "bench/measure.h"

namespace tensorlightning::bench {
namespace {

constexpr std::chrono::seconds kPatience{60};

float Dot(std::span<const float> a, std::span<const float> b) {
  constexpr size_t kSums = 8;
  float sums[kSums] = {};
  for (size_t i = 0; i + kSums <= a.size(); i += kSums) {
    for (size_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  }
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

class Loop {
 public:
  // Weights: a square matrix.
  explicit Loop(std::span<float> weights)
      : weights_(weights),
        width_(static_cast<size_t>(std::sqrt(weights.size()))),
        samples_(Normals(kSamples * width_)) {}

  // Chooses the batch so that a step takes so long.
  void Calibrate(double step_seconds) {
    batch_ = kSamples;
    Step();  // Touches everything.
    const double begin = Seconds(CLOCK_THREAD_CPUTIME_ID);
    Step();
    const double seconds = Seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
    const double batch = std::round(step_seconds / seconds * kSamples);
    batch_ = std::max<size_t>(1, static_cast<size_t>(batch));
  }

  void Step() {
    const std::span<const float> target = Sample(++steps_);
    for (size_t row = 0; row < width_; ++row) {
      const std::span<float> weights = weights_.subspan(row * width_, width_);
      float error = 0;
      for (size_t i = 0; i < batch_; ++i) {
        error = Dot(weights, Sample(steps_ + i)) - target[row];
      }
      const std::span<const float> last = Sample(steps_ + batch_ - 1);
      const float rate = 0.5f / static_cast<float>(width_) * error;
      for (size_t i = 0; i < width_; ++i) weights[i] -= rate * last[i];
    }
  }

  size_t batch() const { return batch_; }

 private:
  static constexpr size_t kSamples = 64;

  std::span<const float> Sample(size_t number) const {
    return std::span(samples_).subspan(number % kSamples * width_, width_);
  }

  std::span<float> weights_;
  size_t width_;
  std::vector<float> samples_;
  size_t batch_ = kSamples;
  size_t steps_ = 0;
};

struct Spent {
  double steps = 0;
  double cpu_seconds = 0;
  double wall_seconds = 0;
};

// Steps for so long; after each, `then`.
template <typename Then>
Result<Spent> Run(Loop& loop, double seconds, Then then) {
  Spent spent;
  const double cpu = Seconds(CLOCK_THREAD_CPUTIME_ID);
  const double wall = Seconds(CLOCK_MONOTONIC);
  while (spent.wall_seconds < seconds) {
    loop.Step();
    const Status status = then();
    if (!status.ok()) return status.error();
    ++spent.steps;
    spent.wall_seconds = Seconds(CLOCK_MONOTONIC) - wall;
  }
  spent.cpu_seconds = Seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
  return spent;
}

}  // namespace

Status Overlap(Arguments arguments) {
  std::string address;
  int64_t width = 1000;
  int64_t turns = 15;
  std::chrono::milliseconds turn_time{1000};
  std::chrono::milliseconds step_time{10};
  Flags flags("bench/comm overlap", "A loop, alone and with exchanges.");
  flags.Add("aggregator", &address, "HOST:PORT", "whom to exchange with");
  flags.Add("width", &width, "N", "of the model, a square matrix");
  flags.Add("turns", &turns, "N", "how often both are measured");
  flags.Add("turn", &turn_time, "TIME", "how long each");
  flags.Add("step", &step_time, "TIME", "of computing between two Step()s");
  Status parsed = Parse(flags, arguments);
  if (!parsed.ok()) return parsed;
  const Result<Endpoint> endpoint = Endpoint::Parse(address);
  if (!endpoint.ok()) return endpoint.error();

  ClientOptions options;
  options.aggregators = {*endpoint};
  const Result<std::unique_ptr<BenchWorker>> started = BenchWorker::Start(
      std::move(options), static_cast<size_t>(width * width));
  if (!started.ok()) return started.error();
  BenchWorker& worker = **started;
  ElasticClient& client = worker.client();
  Loop loop(worker.model());
  loop.Calibrate(std::chrono::duration<double>(step_time).count());

  const double seconds = std::chrono::duration<double>(turn_time).count();
  double in_step = 0;
  const auto nothing = []() -> Status { return Done{}; };
  const auto step = [&]() -> Status {
    const double begin = Seconds(CLOCK_THREAD_CPUTIME_ID);
    const Result<bool> stepped = client.Step(worker.tensors());
    in_step += Seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
    if (!stepped.ok()) return stepped.error();
    return Done{};
  };
  for (int64_t turn = 0; turn < turns; ++turn) {
    Status idle = client.Wait(kPatience);
    if (!idle.ok()) return idle;
    const Result<Spent> alone = Run(loop, seconds, nothing);
    if (!alone.ok()) return alone.error();
    in_step = 0;
    const ClientCounts& counts = client.counts();
    const uint64_t exchanges = counts.exchanges.load();
    const uint64_t backed_off = counts.backed_off.load();
    const Result<Spent> with = Run(loop, seconds, step);
    if (!with.ok()) return with.error();
    Output().Info("turn",
                  {{"batch", loop.batch()},
                   {"alone_steps", alone->steps},
                   {"alone_cpu_seconds", alone->cpu_seconds},
                   {"alone_wall_seconds", alone->wall_seconds},
                   {"steps", with->steps},
                   {"cpu_seconds", with->cpu_seconds},
                   {"wall_seconds", with->wall_seconds},
                   {"step_cpu_seconds", in_step},
                   {"exchanges", counts.exchanges.load() - exchanges},
                   {"backed_off", counts.backed_off.load() - backed_off}});
  }
  return Done{};
}

}  // namespace tensorlightning::bench
