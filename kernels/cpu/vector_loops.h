// The vector loops of VectorOps, written once over a vector type V.
//
// Included by one .cc file per instruction set, which alone is compiled with
// its flags. Hence everything here is in an anonymous namespace and calls
// nothing inline from elsewhere: the linker keeps one copy of such functions,
// and that copy must not be one that only newer processors can run.
//
// V offers: kLanes; Floats Load(p), Store(p, v), Set(value), Add, Sub, Mul;
//   Lanes AtLeast(v, floor)         the lanes whose magnitude reaches it
//   uint32_t Mask(lanes)            a bit for each
//   Lanes Either(lanes, lanes)
//   Floats Without(v, lanes)        v, zero in these lanes
//   uint32_t CountAtLeast(p, floor) of kLanes integers below 2^31
//   StorePositions(out, base, mask) compacted base + lane, 16 bits each
//   StoreIndices(out, base, mask)   compacted base + lane, 32 bits each
//   StoreKept(out, v, mask)         compacted lanes of v
//   StoreMagnitudes(out, v, mask)   the same without their signs
#ifndef TENSORLIGHTNING_KERNELS_CPU_VECTOR_LOOPS_H_
#define TENSORLIGHTNING_KERNELS_CPU_VECTOR_LOOPS_H_

#include "kernels/cpu/vector_ops.h"

namespace tensorlightning::cpu {
namespace {  // NOLINT(google-build-namespaces): see above.

inline uint32_t Bits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline uint32_t Magnitude(float value) { return Bits(value) & 0x7fffffffu; }

// The processor's own prefetching stops at every page; a hint a quarter page
// ahead crosses it.
inline void Ahead(const float* p) {
  constexpr int kAheadFloats = 256;
  __builtin_prefetch(p + kAheadFloats);
}

template <typename V>
struct Loops {
  static constexpr uint32_t kLanes = V::kLanes;

  static bool AllBelow(const float* values, size_t n, uint32_t limit) {
    // Four streams, 16 KB apart: memory delivers them faster than one. No
    // branch but at the end of a block.
    constexpr size_t kApart = 4096;
    size_t i = 0;
    for (; i + 4 * kApart <= n; i += 4 * kApart) {
      auto bad = V::AtLeast(V::Load(values + i), limit);
      for (size_t j = i; j < i + kApart; j += kLanes) {
        for (size_t stream = 0; stream < 4; ++stream) {
          bad = V::Either(
              bad, V::AtLeast(V::Load(values + j + stream * kApart), limit));
        }
      }
      if (V::Mask(bad) != 0) return false;
    }
    for (; i < n; ++i) {
      if (Magnitude(values[i]) >= limit) return false;
    }
    return true;
  }

  // Computes entries with `vector(i)` where a whole vector fits and `single(i)`
  // at the end, and collects the positions of those that reach the floor.
  template <typename Vector, typename Single>
  static uint32_t Collecting(uint32_t n, uint32_t floor, uint16_t base,
                             uint16_t* positions, Vector vector,
                             Single single) {
    uint16_t* out = positions;
    uint32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const uint32_t mask = V::Mask(V::AtLeast(vector(i), floor));
      V::StorePositions(out, static_cast<uint16_t>(base + i), mask);
      out += __builtin_popcount(mask);
    }
    for (; i < n; ++i) {
      *out = static_cast<uint16_t>(base + i);
      out += Magnitude(single(i)) >= floor ? 1 : 0;
    }
    return static_cast<uint32_t>(out - positions);
  }

  static uint32_t PullAndBook(float* x, const float* c, float* r, uint32_t n,
                              float pull, float push, uint32_t floor,
                              uint16_t base, uint16_t* positions) {
    const auto pull_all = V::Set(pull);
    const auto push_all = V::Set(push);
    if (pull == 1.0f) {
      return Collecting(
          n, floor, base, positions,
          [&](uint32_t i) {
            Ahead(x + i);
            Ahead(c + i);
            Ahead(r + i);
            const auto d = V::Sub(V::Load(x + i), V::Load(c + i));
            const auto owed = V::Add(V::Load(r + i), V::Mul(push_all, d));
            V::Store(r + i, owed);
            return owed;
          },
          [&](uint32_t i) { return r[i] += push * (x[i] - c[i]); });
    }
    return Collecting(
        n, floor, base, positions,
        [&](uint32_t i) {
          Ahead(x + i);
          Ahead(c + i);
          Ahead(r + i);
          const auto x_now = V::Load(x + i);
          const auto d = V::Sub(x_now, V::Load(c + i));
          V::Store(x + i, V::Sub(x_now, V::Mul(pull_all, d)));
          const auto owed = V::Add(V::Load(r + i), V::Mul(push_all, d));
          V::Store(r + i, owed);
          return owed;
        },
        [&](uint32_t i) {
          const float d = x[i] - c[i];
          x[i] -= pull * d;
          return r[i] += push * d;
        });
  }

  static uint32_t Subtract(const float* a, const float* b, float* out,
                           uint32_t n, uint32_t floor, uint16_t base,
                           uint16_t* positions) {
    return Collecting(
        n, floor, base, positions,
        [&](uint32_t i) {
          Ahead(a + i);
          Ahead(b + i);
          const auto d = V::Sub(V::Load(a + i), V::Load(b + i));
          V::Store(out + i, d);
          return d;
        },
        [&](uint32_t i) { return out[i] = a[i] - b[i]; });
  }

  static uint32_t Accumulate(float* r, const float* g, uint32_t n,
                             uint32_t floor, uint16_t base,
                             uint16_t* positions) {
    return Collecting(
        n, floor, base, positions,
        [&](uint32_t i) {
          Ahead(r + i);
          Ahead(g + i);
          const auto sum = V::Add(V::Load(r + i), V::Load(g + i));
          V::Store(r + i, sum);
          return sum;
        },
        [&](uint32_t i) { return r[i] += g[i]; });
  }

  static uint32_t Collect(const float* values, uint32_t n, uint32_t floor,
                          uint16_t base, uint16_t* positions) {
    return Collecting(
        n, floor, base, positions,
        [&](uint32_t i) { return V::Load(values + i); },
        [&](uint32_t i) { return values[i]; });
  }

  static uint32_t CountAtLeast(const uint32_t* magnitudes, uint32_t n,
                               uint32_t floor) {
    uint32_t count = 0;
    uint32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      count += V::CountAtLeast(magnitudes + i, floor);
    }
    for (; i < n; ++i) count += magnitudes[i] >= floor ? 1 : 0;
    return count;
  }

  static Isolated Isolate(const uint32_t* magnitudes, uint32_t n, uint32_t k,
                          uint32_t low, uint32_t high) {
    uint32_t reaching = CountAtLeast(magnitudes, n, low);
    while (high - low > 1 && reaching != k) {
      const uint32_t middle = low + (high - low) / 2;
      const uint32_t count = CountAtLeast(magnitudes, n, middle);
      const bool enough = count >= k;
      low = enough ? middle : low;
      reaching = enough ? count : reaching;
      high = enough ? high : middle;
    }
    return {low, reaching};
  }

  static size_t CollectWide(const float* values, size_t n, uint32_t floor,
                            uint32_t base, uint32_t* indices,
                            uint32_t* magnitudes) {
    size_t kept = 0;
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      Ahead(values + i);
      const auto v = V::Load(values + i);
      const uint32_t mask = V::Mask(V::AtLeast(v, floor));
      V::StoreIndices(indices + kept, base + static_cast<uint32_t>(i), mask);
      V::StoreMagnitudes(magnitudes + kept, v, mask);
      kept += static_cast<size_t>(__builtin_popcount(mask));
    }
    for (; i < n; ++i) {
      indices[kept] = base + static_cast<uint32_t>(i);
      magnitudes[kept] = Magnitude(values[i]);
      kept += magnitudes[kept] >= floor ? 1 : 0;
    }
    return kept;
  }

  static size_t Prune(float* r, const float* g, size_t n, uint32_t floor,
                      uint32_t base, uint32_t* indices, float* values) {
    size_t kept = 0;
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      Ahead(r + i);
      Ahead(g + i);
      const auto sum = V::Add(V::Load(r + i), V::Load(g + i));
      const auto out = V::AtLeast(sum, floor);
      const uint32_t mask = V::Mask(out);
      V::Store(r + i, V::Without(sum, out));
      V::StoreIndices(indices + kept, base + static_cast<uint32_t>(i), mask);
      V::StoreKept(values + kept, sum, mask);
      kept += static_cast<size_t>(__builtin_popcount(mask));
    }
    for (; i < n; ++i) {
      const float sum = r[i] + g[i];
      const bool keep = Magnitude(sum) >= floor;
      r[i] = keep ? 0.0f : sum;
      indices[kept] = base + static_cast<uint32_t>(i);
      values[kept] = sum;
      kept += keep ? 1 : 0;
    }
    return kept;
  }

  static constexpr VectorOps Table(const char* name) {
    return {name,    AllBelow, PullAndBook, Subtract, Accumulate,
            Collect, Isolate,  CollectWide, Prune};
  }
};

}  // namespace
}  // namespace tensorlightning::cpu

#endif  // TENSORLIGHTNING_KERNELS_CPU_VECTOR_LOOPS_H_
