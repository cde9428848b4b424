// Inputs for the kernels' tests: seeded, so that a failure can be repeated.
#ifndef TENSORLIGHTNING_TESTS_KERNELS_DATA_H_
#define TENSORLIGHTNING_TESTS_KERNELS_DATA_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/quantise.h"
#include "kernels/select.h"

namespace tensorlightning::testing {

using Random = std::mt19937_64;

// Sizes around every boundary that the kernels know: lanes, chunks, groups.
inline std::vector<size_t> EdgeSizes() {
  return {0,    1,    2,    7,    8,    9,     15,    16,    17,    31,    33,
          4095, 4096, 4097, 8191, 8193, 65535, 65536, 65537, 70000, 140001};
}

enum class Fill {
  kNormal,     // What gradients look like, more or less.
  kHeavyTail,  // A few entries far larger than the rest.
  kAllEqual,   // Nothing but ties.
  kFewValues,  // Many ties, both signs.
  kZero,
  kMostlyZero,  // And clustered.
  kDenormal,
  kHuge,        // Up to the largest float.
  kMixedScale,  // Every chunk on a scale of its own.
};
inline const std::vector<Fill> kAllFills = {
    Fill::kNormal,    Fill::kHeavyTail, Fill::kAllEqual,
    Fill::kFewValues, Fill::kZero,      Fill::kMostlyZero,
    Fill::kDenormal,  Fill::kHuge,      Fill::kMixedScale};

inline std::vector<float> Make(Fill fill, size_t n, uint64_t seed) {
  Random random(seed * 7919 + static_cast<uint64_t>(fill));
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  float scale = 1.0f;
  bool in_cluster = false;
  for (size_t i = 0; i < n; ++i) {
    const float v = normal(random);
    switch (fill) {
      case Fill::kNormal:
        values[i] = v;
        break;
      case Fill::kHeavyTail:
        values[i] = v * v * v * v * v;
        break;
      case Fill::kAllEqual:
        values[i] = 0.25f;
        break;
      case Fill::kFewValues:
        values[i] = static_cast<float>(static_cast<int>(v * 2)) * 0.5f;
        break;
      case Fill::kZero:
        values[i] = random() % 2 == 0 ? 0.0f : -0.0f;
        break;
      case Fill::kMostlyZero:
        if (random() % 300 == 0) in_cluster = true;
        if (random() % 8 == 0) in_cluster = false;
        values[i] = in_cluster ? v : 0.0f;
        break;
      case Fill::kDenormal:
        values[i] = v * 1e-40f;
        break;
      case Fill::kHuge:
        values[i] = std::clamp(v * 1e38f, -3.4028234e38f, 3.4028234e38f);
        break;
      case Fill::kMixedScale:
        if (i % 4096 == 0) {
          scale = std::ldexp(1.0f, static_cast<int>(random() % 60) - 30);
        }
        values[i] = v * scale;
        break;
    }
  }
  return values;
}

// The bits, so that comparisons see -0 and don't trip over NaN.
inline std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) {
    bits.push_back(std::bit_cast<uint32_t>(value));
  }
  return bits;
}

// The k of largest magnitude in values[begin, end), ties to the lower index,
// ascending: by sorting everything.
inline std::vector<uint32_t> TopBySorting(const std::vector<float>& values,
                                          size_t begin, size_t end, size_t k) {
  std::vector<uint32_t> order(end - begin);
  std::iota(order.begin(), order.end(), static_cast<uint32_t>(begin));
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return MagnitudeBits(values[a]) > MagnitudeBits(values[b]);
  });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace tensorlightning::testing

#endif  // TENSORLIGHTNING_TESTS_KERNELS_DATA_H_
