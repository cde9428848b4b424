// AVX2: eight lanes. Compaction goes through a table of 256 lane orders.
#include <immintrin.h>

#include "kernels/cpu/instruction_sets.h"
#include "kernels/cpu/vector_loops.h"

namespace tensorlightning::cpu {
namespace {

// For each mask of eight lanes, the lanes that are set, lowest first.
struct LaneOrders {
  alignas(64) uint8_t lanes[256][8];
};
constexpr LaneOrders MakeLaneOrders() {
  LaneOrders orders{};
  for (int mask = 0; mask < 256; ++mask) {
    int kept = 0;
    for (int lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) {
        orders.lanes[mask][kept++] = static_cast<uint8_t>(lane);
      }
    }
  }
  return orders;
}
constexpr LaneOrders kLaneOrders = MakeLaneOrders();

struct Avx2 {
  using Floats = __m256;
  using Lanes = __m256i;
  static constexpr uint32_t kLanes = 8;

  static Floats Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
  static Floats Set(float value) { return _mm256_set1_ps(value); }
  static Floats Add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats Sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static Floats Mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }

  static __m256i MagnitudesOf(Floats v) {
    return _mm256_and_si256(_mm256_castps_si256(v),
                            _mm256_set1_epi32(0x7fffffff));
  }
  // Magnitudes are non-negative as integers, so a signed compare serves.
  static Lanes Reach(__m256i magnitudes, uint32_t floor) {
    return _mm256_cmpgt_epi32(magnitudes,
                              _mm256_set1_epi32(static_cast<int>(floor) - 1));
  }
  static Lanes AtLeast(Floats v, uint32_t floor) {
    return Reach(MagnitudesOf(v), floor);
  }
  static uint32_t Mask(Lanes lanes) {
    return static_cast<uint32_t>(
        _mm256_movemask_ps(_mm256_castsi256_ps(lanes)));
  }
  static Lanes Either(Lanes a, Lanes b) { return _mm256_or_si256(a, b); }
  static uint32_t CountAtLeast(const uint32_t* p, uint32_t floor) {
    const __m256i magnitudes =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return static_cast<uint32_t>(
        __builtin_popcount(Mask(Reach(magnitudes, floor))));
  }
  static __m256i LanesOf(uint32_t mask) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(
        reinterpret_cast<const __m128i*>(kLaneOrders.lanes[mask])));
  }
  static Floats Without(Floats v, Lanes lanes) {
    return _mm256_andnot_ps(_mm256_castsi256_ps(lanes), v);
  }
  static void StorePositions(uint16_t* out, uint16_t base, uint32_t mask) {
    const __m128i lanes = _mm_cvtepu8_epi16(_mm_loadl_epi64(
        reinterpret_cast<const __m128i*>(kLaneOrders.lanes[mask])));
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(out),
        _mm_add_epi16(lanes, _mm_set1_epi16(static_cast<int16_t>(base))));
  }
  static void StoreIndices(uint32_t* out, uint32_t base, uint32_t mask) {
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(out),
        _mm256_add_epi32(LanesOf(mask),
                         _mm256_set1_epi32(static_cast<int>(base))));
  }
  static void StoreKept(float* out, Floats v, uint32_t mask) {
    _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(v, LanesOf(mask)));
  }
  static void StoreMagnitudes(uint32_t* out, Floats v, uint32_t mask) {
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(out),
        _mm256_permutevar8x32_epi32(MagnitudesOf(v), LanesOf(mask)));
  }
};

}  // namespace

const VectorOps kAvx2Ops = Loops<Avx2>::Table("avx2");

}  // namespace tensorlightning::cpu
