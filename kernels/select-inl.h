// The template of select.h; include that instead.
#ifndef TENSORLIGHTNING_KERNELS_SELECT_INL_H_
#define TENSORLIGHTNING_KERNELS_SELECT_INL_H_

#include <algorithm>
#include <functional>

#include "kernels/quantise.h"

namespace tensorlightning {

inline constexpr size_t kSamples = 65536;

// Entry of sample s out of `samples` over n entries: one per stratum, at a
// place that a hash of s chooses. CPU and GPU sample alike.
constexpr size_t SampleIndex(size_t s, size_t samples, size_t n,
                             uint64_t seed) {
  const size_t begin = s * n / samples;
  const size_t end = (s + 1) * n / samples;
  uint64_t hash = (seed ^ s) * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 32;
  return begin + hash % (end - begin);
}

template <typename Peek>
uint32_t SampleFloor(size_t n, double density, uint64_t seed, Peek peek,
                     Workspace& workspace) {
  const size_t samples = std::min(n, kSamples);
  if (samples == 0) return 0;
  workspace.samples.resize(kSamples);
  uint32_t* const magnitudes = workspace.samples.data();
  for (size_t s = 0; s < samples; ++s) {
    magnitudes[s] = MagnitudeBits(peek(SampleIndex(s, samples, n, seed)));
  }
  const size_t rank = KeptOf(density, samples);
  std::nth_element(magnitudes, magnitudes + rank - 1, magnitudes + samples,
                   std::greater<>());
  // Where most entries are zero, so is the estimate; zeros are never worth it.
  return std::max(magnitudes[rank - 1], 1u);
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_SELECT_INL_H_
