// What the benchmarks work on.
#ifndef TENSORLIGHTNING_BENCH_DATA_H_
#define TENSORLIGHTNING_BENCH_DATA_H_

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <random>
#include <span>
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
inline std::vector<float> Normals(size_t entries) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(entries);
  for (float& value : values) value = normal(random);
  return values;
}

// Made once per process and shared: making it takes longer than measuring.
inline const std::vector<float>& Gradient() {
  static const std::vector<float> gradient = Normals(Entries());
  return gradient;
}

// Stands for the steps of training between two exchanges: the model moves by a
// tenth of the noise, which is shifted each time. Noise that is longer by
// kShifts moves all of it.
inline constexpr size_t kShifts = 1000;
inline void Train(std::span<float> model, std::span<const float> noise,
                  size_t step) {
  const size_t shift = std::min(step % kShifts, noise.size());
  const size_t moved = std::min(model.size(), noise.size() - shift);
  for (size_t i = 0; i < moved; ++i) model[i] += 0.1f * noise[i + shift];
}

}  // namespace tensorlightning::bench

#endif  // TENSORLIGHTNING_BENCH_DATA_H_
