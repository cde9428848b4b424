// The reference: one entry at a time, as plainly as it can be said.
#include <algorithm>

#include "kernels/cpu/instruction_sets.h"
#include "kernels/quantise.h"

namespace tensorlightning::cpu {
namespace {

template <typename Compute>
uint32_t Collecting(uint32_t n, uint32_t floor, uint16_t base,
                    uint16_t* positions, Compute compute) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (MagnitudeBits(compute(i)) >= floor) {
      positions[kept++] = static_cast<uint16_t>(base + i);
    }
  }
  return kept;
}

bool AllBelow(const float* values, size_t n, uint32_t limit) {
  return std::all_of(values, values + n, [limit](float value) {
    return MagnitudeBits(value) < limit;
  });
}

uint32_t PullAndBook(float* x, const float* c, float* r, uint32_t n, float pull,
                     float push, uint32_t floor, uint16_t base,
                     uint16_t* positions) {
  return Collecting(n, floor, base, positions, [&](uint32_t i) {
    const float d = x[i] - c[i];
    if (pull != 1.0f) x[i] -= pull * d;
    return r[i] += push * d;
  });
}

uint32_t Subtract(const float* a, const float* b, float* out, uint32_t n,
                  uint32_t floor, uint16_t base, uint16_t* positions) {
  return Collecting(n, floor, base, positions,
                    [&](uint32_t i) { return out[i] = a[i] - b[i]; });
}

uint32_t Accumulate(float* r, const float* g, uint32_t n, uint32_t floor,
                    uint16_t base, uint16_t* positions) {
  return Collecting(n, floor, base, positions,
                    [&](uint32_t i) { return r[i] += g[i]; });
}

uint32_t Collect(const float* values, uint32_t n, uint32_t floor, uint16_t base,
                 uint16_t* positions) {
  return Collecting(n, floor, base, positions,
                    [&](uint32_t i) { return values[i]; });
}

Isolated Isolate(const uint32_t* magnitudes, uint32_t n, uint32_t k,
                 uint32_t low, uint32_t high) {
  const auto count = [&](uint32_t floor) {
    return static_cast<uint32_t>(
        std::count_if(magnitudes, magnitudes + n,
                      [floor](uint32_t m) { return m >= floor; }));
  };
  while (high - low > 1 && count(low) != k) {
    const uint32_t middle = low + (high - low) / 2;
    (count(middle) >= k ? low : high) = middle;
  }
  return {low, count(low)};
}

size_t CollectWide(const float* values, size_t n, uint32_t floor, uint32_t base,
                   uint32_t* indices, uint32_t* magnitudes) {
  size_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t magnitude = MagnitudeBits(values[i]);
    if (magnitude < floor) continue;
    indices[kept] = base + static_cast<uint32_t>(i);
    magnitudes[kept++] = magnitude;
  }
  return kept;
}

size_t Prune(float* r, const float* g, size_t n, uint32_t floor, uint32_t base,
             uint32_t* indices, float* values) {
  size_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    r[i] += g[i];
    if (MagnitudeBits(r[i]) < floor) continue;
    indices[kept] = base + static_cast<uint32_t>(i);
    values[kept++] = r[i];
    r[i] = 0.0f;
  }
  return kept;
}

}  // namespace

const VectorOps kScalarOps = {"scalar", AllBelow,    PullAndBook,
                              Subtract, Accumulate,  Collect,
                              Isolate,  CollectWide, Prune};

}  // namespace tensorlightning::cpu
