// Exact global top-k, beside std::nth_element.
#include <algorithm>
#include <vector>

#include "bench/data.h"
#include "bench/versus.h"
#include "kernels/quantise.h"
#include "kernels/select.h"

namespace tensorlightning::bench {
namespace {

constexpr int kSlowTurns = 5;

// Ours gives indices and values, as numpy's pipeline does. The other one copies
// the magnitudes and partitions them, and has no indices yet. As integers:
// std::nth_element partitions these faster than floats.
void TopK(benchmark::State& state, double density) {
  const auto rule = SelectionRule::GlobalTopK(density);
  const std::vector<float>& g = Gradient();
  std::vector<float> values(rule.MaxKept(g.size()));
  std::vector<uint32_t> copy(g.size());
  Workspace workspace;
  TakeTurns(
      state, Clock::kThread,
      {.bytes = static_cast<double>(sizeof(float) * g.size())}, [] {},
      [&] {
        std::transform(g.begin(), g.end(), copy.begin(), MagnitudeBits);
        const auto nth =
            copy.end() - static_cast<ptrdiff_t>(KeptOf(density, g.size()));
        std::nth_element(copy.begin(), nth, copy.end());
        benchmark::DoNotOptimize(*nth);
      },
      [&] {
        const auto kept = Select(g, rule, workspace);
        if (!kept.ok()) std::abort();
        std::transform(kept->begin(), kept->end(), values.begin(),
                       [&](uint32_t i) { return g[i]; });
      });
}
void TopK1Pct(benchmark::State& state) { TopK(state, 0.01); }
void TopK10Pct(benchmark::State& state) { TopK(state, 0.1); }
TL_BENCH_VERSUS(TopK1Pct, "topk_vs_nth", kSlowTurns);
TL_BENCH_VERSUS(TopK10Pct, "topk_vs_nth_10pct", kSlowTurns);

}  // namespace
}  // namespace tensorlightning::bench
