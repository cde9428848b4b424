// Pruning a gradient into a residual, beside r += g: the same 12 bytes an
// entry, and nothing else.
#include <algorithm>
#include <vector>

#include "bench/data.h"
#include "bench/versus.h"
#include "kernels/cpu/vector_ops.h"
#include "kernels/exchange.h"

namespace tensorlightning::bench {
namespace {

constexpr double kBytesPerEntry = 12;

TL_BENCH_ROOF void AddTo(float* __restrict r, const float* __restrict g,
                         size_t n) {
  for (size_t i = 0; i < n; ++i) r[i] += g[i];
}

// The residual is emptied before each turn, so that the density stays what it
// is.
template <typename Kernel>
void AgainstAdd(benchmark::State& state, Kernel kernel) {
  std::vector<float> r(Entries());
  TakeTurns(
      state, Clock::kThread,
      {.bytes = kBytesPerEntry * static_cast<double>(r.size())},
      [&] { std::fill(r.begin(), r.end(), 0.0f); },
      [&] { AddTo(r.data(), Gradient().data(), r.size()); },
      [&] { kernel(r); });
}

// The thresholds that 1% and 10% of a standard normal's magnitudes exceed.
constexpr float kThreshold1Pct = 2.5758f;
constexpr float kThreshold10Pct = 1.6449f;

struct Pruned {
  std::vector<uint32_t> indices =
      std::vector<uint32_t>(Entries() + cpu::kVectorSlack);
  std::vector<float> values = std::vector<float>(Entries() + cpu::kVectorSlack);
};

// The kernel alone. (Prune() looks for NaN and Inf first: one pass more.)
void PruneAt(benchmark::State& state, float threshold) {
  Pruned to;
  size_t kept = 0;
  AgainstAdd(state, [&](std::vector<float>& r) {
    kept = cpu::Ops().prune(r.data(), Gradient().data(), r.size(),
                            ThresholdFloor(threshold), 0, to.indices.data(),
                            to.values.data());
  });
  state.counters["kept"] = static_cast<double>(kept);
}
void Prune1Pct(benchmark::State& state) { PruneAt(state, kThreshold1Pct); }
void Prune10Pct(benchmark::State& state) { PruneAt(state, kThreshold10Pct); }
TL_BENCH_VERSUS(Prune1Pct, "prune_1pct", kTurns);
TL_BENCH_VERSUS(Prune10Pct, "prune_10pct", kTurns);

void PruneChecked(benchmark::State& state) {
  Pruned to;
  AgainstAdd(state, [&](std::vector<float>& r) {
    const auto kept =
        Prune(r, Gradient(), kThreshold1Pct, to.indices, to.values);
    if (!kept.ok()) std::abort();
  });
}
TL_BENCH_VERSUS(PruneChecked, "prune_1pct_checked", kTurns);

// Chunk-wise top-k at 1%, 4 bits, bytes out.
void CompressChunks(benchmark::State& state) {
  const Compression compression{SelectionRule::ChunkTopK(0.01),
                                ValueCode::kBits4};
  std::vector<std::byte> out(compression.MaxBytes(Entries()));
  Workspace workspace;
  AgainstAdd(state, [&](std::vector<float>& r) {
    const auto emitted = Compress(r, Gradient(), compression, workspace, out);
    if (!emitted.ok()) std::abort();
  });
}
TL_BENCH_VERSUS(CompressChunks, "compress_1pct", kTurns);

}  // namespace
}  // namespace tensorlightning::bench
