// What the benchmarks of kernels work on. Made once per process and shared:
// making it takes longer than measuring.
#ifndef TENSORLIGHTNING_BENCH_DATA_H_
#define TENSORLIGHTNING_BENCH_DATA_H_

#include <cstddef>
#include <cstdlib>
#include <random>
#include <vector>

// How the plain loops that serve as roofs are compiled: for AVX2 where the
// machine has it.
#define TL_BENCH_ROOF __attribute__((target_clones("avx2", "default")))

namespace tensorlightning::bench {

inline size_t Entries() {
  static const size_t entries = [] {
    const char* const text = std::getenv("TL_BENCH_ENTRIES");
    const size_t asked = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
    return asked == 0 ? 25'000'000 : asked;
  }();
  return entries;
}

// Standard normal, the same in every run.
inline const std::vector<float>& Gradient() {
  static const std::vector<float> gradient = [] {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(Entries());
    for (float& value : values) value = normal(random);
    return values;
  }();
  return gradient;
}

}  // namespace tensorlightning::bench

#endif  // TENSORLIGHTNING_BENCH_DATA_H_
