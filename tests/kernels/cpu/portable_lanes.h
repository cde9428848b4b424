// Sixteen lanes in plain C++: what AVX-512's loops are tested with on
// processors that have no AVX-512.
#ifndef TENSORLIGHTNING_TESTS_KERNELS_CPU_PORTABLE_LANES_H_
#define TENSORLIGHTNING_TESTS_KERNELS_CPU_PORTABLE_LANES_H_

#include <array>
#include <bit>

#include "kernels/cpu/vector_loops.h"

namespace tensorlightning::cpu {
namespace {  // NOLINT(google-build-namespaces): as in vector_loops.h.

struct Portable {
  static constexpr uint32_t kLanes = 16;
  using Floats = std::array<float, kLanes>;
  using Lanes = uint32_t;

  template <typename Of>
  static Floats Each(Of of) {
    Floats result;
    for (uint32_t i = 0; i < kLanes; ++i) result[i] = of(i);
    return result;
  }
  static Floats Load(const float* p) {
    return Each([&](uint32_t i) { return p[i]; });
  }
  static void Store(float* p, const Floats& v) {
    for (uint32_t i = 0; i < kLanes; ++i) p[i] = v[i];
  }
  static Floats Set(float value) {
    return Each([&](uint32_t) { return value; });
  }
  static Floats Add(const Floats& a, const Floats& b) {
    return Each([&](uint32_t i) { return a[i] + b[i]; });
  }
  static Floats Sub(const Floats& a, const Floats& b) {
    return Each([&](uint32_t i) { return a[i] - b[i]; });
  }
  static Floats Mul(const Floats& a, const Floats& b) {
    return Each([&](uint32_t i) { return a[i] * b[i]; });
  }
  static Lanes AtLeast(const Floats& v, uint32_t floor) {
    Lanes lanes = 0;
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (Magnitude(v[i]) >= floor) lanes |= 1u << i;
    }
    return lanes;
  }
  static uint32_t Mask(Lanes lanes) { return lanes; }
  static Lanes Either(Lanes a, Lanes b) { return a | b; }
  static Floats Without(const Floats& v, Lanes lanes) {
    return Each(
        [&](uint32_t i) { return (lanes >> i & 1) != 0 ? 0.0f : v[i]; });
  }
  static uint32_t CountAtLeast(const uint32_t* p, uint32_t floor) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < kLanes; ++i) count += p[i] >= floor ? 1 : 0;
    return count;
  }
  // Stores all lanes, as the real ones do: scrap past those kept.
  template <typename T, typename Of>
  static void Compact(T* out, uint32_t mask, Of of) {
    std::array<T, kLanes> kept{};
    uint32_t count = 0;
    for (uint32_t i = 0; i < kLanes; ++i) {
      if ((mask >> i & 1) != 0) kept[count++] = of(i);
    }
    for (uint32_t i = 0; i < kLanes; ++i) out[i] = kept[i];
  }
  static void StorePositions(uint16_t* out, uint16_t base, uint32_t mask) {
    Compact(out, mask,
            [&](uint32_t i) { return static_cast<uint16_t>(base + i); });
  }
  static void StoreIndices(uint32_t* out, uint32_t base, uint32_t mask) {
    Compact(out, mask, [&](uint32_t i) { return base + i; });
  }
  static void StoreKept(float* out, const Floats& v, uint32_t mask) {
    Compact(out, mask, [&](uint32_t i) { return v[i]; });
  }
  static void StoreMagnitudes(uint32_t* out, const Floats& v, uint32_t mask) {
    Compact(out, mask, [&](uint32_t i) { return Magnitude(v[i]); });
  }
};

const VectorOps kPortableOps = Loops<Portable>::Table("portable");

}  // namespace
}  // namespace tensorlightning::cpu

#endif  // TENSORLIGHTNING_TESTS_KERNELS_CPU_PORTABLE_LANES_H_
