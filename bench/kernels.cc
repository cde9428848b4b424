// How fast the kernels are, beside what the memory allows.
//
// Every case moves 25 million floats (TL_BENCH_ENTRIES changes that) on one
// thread unless its name says otherwise. Names that start with "roof_" are the
// limits: plain loops that move the same bytes. bench/kernels.py runs this,
// adds numpy, and divides.
#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/vector_ops.h"
#include "kernels/exchange.h"
#include "kernels/float_mode.h"

namespace tensorlightning {
namespace {

size_t Entries() {
  const char* const text = std::getenv("TL_BENCH_ENTRIES");
  return text == nullptr ? 25'000'000 : std::strtoull(text, nullptr, 10);
}

std::vector<float> Normal(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// Made once and shared: making them takes longer than measuring.
const std::vector<float>& Gradient() {
  static const std::vector<float> gradient = Normal(Entries(), 1);
  return gradient;
}

// The threshold that a share of a standard normal's magnitudes exceeds.
float ThresholdFor(double density) { return density == 0.01 ? 2.5758f : 1.6449f; }

// ---- Roofs. -----------------------------------------------------------------

__attribute__((target("avx2"))) void AddTo(float* r, const float* g, size_t n) {
  for (size_t i = 0; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(
        r + i, _mm256_add_ps(_mm256_loadu_ps(r + i), _mm256_loadu_ps(g + i)));
  }
}

// 20 bytes an entry: three read, two written, as the worker's step must.
__attribute__((target("avx2"))) void Triad(float* x, const float* c, float* r,
                                           size_t n, float alpha) {
  const __m256 a = _mm256_set1_ps(alpha);
  for (size_t i = 0; i + 8 <= n; i += 8) {
    const __m256 x_now = _mm256_loadu_ps(x + i);
    const __m256 t =
        _mm256_mul_ps(a, _mm256_sub_ps(x_now, _mm256_loadu_ps(c + i)));
    _mm256_storeu_ps(x + i, _mm256_sub_ps(x_now, t));
    _mm256_storeu_ps(r + i, _mm256_add_ps(_mm256_loadu_ps(r + i), t));
  }
}

void RoofAdd(benchmark::State& state) {
  std::vector<float> r(Entries());
  for (auto _ : state) {
    AddTo(r.data(), Gradient().data(), r.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 12 * Entries());
}
BENCHMARK(RoofAdd)->Name("roof_add")->Unit(benchmark::kMillisecond);

void RoofTriad(benchmark::State& state) {
  std::vector<float> x(Gradient());
  std::vector<float> c(Entries());
  std::vector<float> r(Entries());
  for (auto _ : state) {
    Triad(x.data(), c.data(), r.data(), r.size(), 1e-3f);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 20 * Entries());
}
BENCHMARK(RoofTriad)->Name("roof_triad")->Unit(benchmark::kMillisecond);

// ---- Pruning. ---------------------------------------------------------------

// The residual is put back between iterations, outside the clock, by negating
// the gradient in turn: r stays near zero and the density stays what it is.
void PruneLoop(benchmark::State& state, bool checked) {
  const double density = static_cast<double>(state.range(0)) / 1000;
  const float threshold = ThresholdFor(density);
  const size_t n = Entries();
  const std::vector<float>& g = Gradient();
  std::vector<float> r(n);
  std::vector<uint32_t> indices(n + cpu::kVectorSlack);
  std::vector<float> values(n + cpu::kVectorSlack);
  size_t kept = 0;
  for (auto _ : state) {
    state.PauseTiming();
    std::fill(r.begin(), r.end(), 0.0f);
    state.ResumeTiming();
    if (checked) {
      kept = *Prune(r, g, threshold, indices, values);
    } else {
      kept = cpu::Ops().prune(r.data(), g.data(), n, ThresholdFloor(threshold),
                              0, indices.data(), values.data());
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 12 * n);
  state.counters["density"] =
      static_cast<double>(kept) / static_cast<double>(n);
}
void PruneOnly(benchmark::State& state) { PruneLoop(state, false); }
void PruneChecked(benchmark::State& state) { PruneLoop(state, true); }
BENCHMARK(PruneOnly)->Name("prune")->Arg(10)->Arg(100)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(PruneChecked)->Name("prune_checked")->Arg(10)->Arg(100)
    ->Unit(benchmark::kMillisecond);

// ---- The worker's step. -----------------------------------------------------

struct Worker {
  explicit Worker(size_t n, uint64_t seed)
      : start(Normal(n, seed)), x(start), c(n), r(n),
        out(compression.MaxBytes(n)) {}

  // As if a few steps of training lay between two exchanges.
  void Train() {
    const size_t shift = ++steps % 1000;
    for (size_t i = 0; i + 1000 < x.size(); ++i) {
      x[i] += 0.1f * start[i + shift];
    }
  }
  void Step() {
    const auto emitted = WorkerStep(x, c, r, {0.225f, 0.225f}, compression,
                                    workspace, out);
    if (!emitted.ok()) std::abort();
    bytes = emitted->bytes;
  }

  Compression compression{SelectionRule::ChunkTopK(0.01), ValueCode::kBits4};
  size_t steps = 0;
  std::vector<float> start, x, c, r;
  std::vector<std::byte> out;
  Workspace workspace;
  size_t bytes = 0;
};

void Fused(benchmark::State& state) {
  Worker worker(Entries(), 2);
  for (auto _ : state) {
    state.PauseTiming();
    worker.Train();
    state.ResumeTiming();
    worker.Step();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 20 * Entries());
  state.counters["bytes"] = static_cast<double>(worker.bytes);
}
BENCHMARK(Fused)->Name("fused")->Unit(benchmark::kMillisecond);

// The same work, shared out over threads as a sharded exchange does.
void FusedThreads(benchmark::State& state) {
  const auto threads = static_cast<size_t>(state.range(0));
  std::vector<std::unique_ptr<Worker>> workers;
  for (size_t i = 0; i < threads; ++i) {
    workers.push_back(std::make_unique<Worker>(Entries() / threads, 2 + i));
  }
  for (auto _ : state) {
    std::vector<std::thread> running;
    for (size_t i = 1; i < threads; ++i) {
      running.emplace_back([&, i] { workers[i]->Step(); });
    }
    workers[0]->Step();
    for (std::thread& thread : running) thread.join();
  }
  state.SetBytesProcessed(state.iterations() * 20 * Entries());
}
BENCHMARK(FusedThreads)->Name("fused_threads")->Arg(1)->Arg(2)
    ->Unit(benchmark::kMillisecond)->UseRealTime();

void Reply(benchmark::State& state) {
  const std::vector<float>& centre = Gradient();
  std::vector<float> view(Entries());
  const Compression compression{SelectionRule::ChunkTopK(0.03),
                                ValueCode::kBits4};
  std::vector<std::byte> out(compression.MaxBytes(view.size()));
  Workspace workspace;
  for (auto _ : state) {
    const auto emitted = MakeReply(centre, view, compression, workspace, out);
    if (!emitted.ok()) std::abort();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 8 * Entries());
}
BENCHMARK(Reply)->Name("reply")->Unit(benchmark::kMillisecond);

// ---- Exact selection. -------------------------------------------------------

void TopK(benchmark::State& state) {
  const double density = static_cast<double>(state.range(0)) / 1000;
  Workspace workspace;
  for (auto _ : state) {
    const auto kept =
        Select(Gradient(), SelectionRule::GlobalTopK(density), workspace);
    if (!kept.ok()) std::abort();
    benchmark::DoNotOptimize(kept->data());
  }
  state.SetBytesProcessed(state.iterations() * 4 * Entries());
}
BENCHMARK(TopK)->Name("topk")->Arg(10)->Arg(100)
    ->Unit(benchmark::kMillisecond);

// Magnitudes copied, partitioned, and nothing more: no indices yet.
void NthElement(benchmark::State& state) {
  const double density = static_cast<double>(state.range(0)) / 1000;
  std::vector<float> copy(Entries());
  for (auto _ : state) {
    std::transform(Gradient().begin(), Gradient().end(), copy.begin(),
                   [](float v) { return v < 0 ? -v : v; });
    const auto k = static_cast<ptrdiff_t>(KeptOf(density, copy.size()));
    std::nth_element(copy.begin(), copy.begin() + k - 1, copy.end(),
                     std::greater<>());
    benchmark::DoNotOptimize(copy[k - 1]);
  }
}
BENCHMARK(NthElement)->Name("nth_element")->Arg(10)->Arg(100)
    ->Unit(benchmark::kMillisecond);

// ---- Decoding. --------------------------------------------------------------

struct Coded {
  Coded() {
    std::vector<float> r = Gradient();
    const Compression compression{SelectionRule::GlobalTopK(0.01),
                                  ValueCode::kBits4};
    bytes.resize(compression.MaxBytes(r.size()));
    Workspace workspace;
    bytes.resize(Compress(r, {}, compression, workspace, bytes)->bytes);
    const auto message = Message::Parse(bytes, r.size());
    indices.resize(message->kept());
    values.resize(message->kept());
    DecodeEntries(*message, indices, values);
  }
  static const Coded& Get() {
    static const Coded coded;
    return coded;
  }
  std::vector<std::byte> bytes;
  std::vector<uint32_t> indices;
  std::vector<float> values;
};

void RoofScatter(benchmark::State& state) {
  const Coded& coded = Coded::Get();
  std::vector<float> y(Entries());
  for (auto _ : state) {
    for (size_t i = 0; i < coded.indices.size(); ++i) {
      y[coded.indices[i]] += coded.values[i];
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * coded.indices.size());
}
BENCHMARK(RoofScatter)->Name("roof_scatter")->Unit(benchmark::kMicrosecond);

// From bytes: validating is part of it.
void Decode(benchmark::State& state) {
  const Coded& coded = Coded::Get();
  std::vector<float> y(Entries());
  for (auto _ : state) {
    const auto message = Message::Parse(coded.bytes, y.size());
    if (!message.ok()) std::abort();
    DecodeAdd(*message, y, 1.0f);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * coded.indices.size());
}
BENCHMARK(Decode)->Name("decode")->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tensorlightning

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  tensorlightning::Gradient();  // Not on the first benchmark's clock.
  benchmark::RunSpecifiedBenchmarks();
}
