// AVX-512 (F, BW, DQ, VL): sixteen lanes, compaction by instruction. Compress
// goes to a register and is stored whole: to memory it is slow on some.
#include <immintrin.h>

#include "kernels/cpu/instruction_sets.h"
#include "kernels/cpu/vector_loops.h"

namespace tensorlightning::cpu {
namespace {

struct Avx512 {
  using Floats = __m512;
  using Lanes = __mmask16;
  static constexpr uint32_t kLanes = 16;

  static Floats Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
  static Floats Set(float value) { return _mm512_set1_ps(value); }
  static Floats Add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats Sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats Mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }

  static __m512i MagnitudesOf(Floats v) {
    return _mm512_and_si512(_mm512_castps_si512(v),
                            _mm512_set1_epi32(0x7fffffff));
  }
  static Lanes Reach(__m512i magnitudes, uint32_t floor) {
    return _mm512_cmpge_epi32_mask(magnitudes,
                                   _mm512_set1_epi32(static_cast<int>(floor)));
  }
  static Lanes AtLeast(Floats v, uint32_t floor) {
    return Reach(MagnitudesOf(v), floor);
  }
  // Through a register: g++ 12 otherwise spills the sixteen bits of a mask now
  // and then, as it does under ThreadSanitizer, and counts thirty-two.
  static uint32_t Mask(Lanes lanes) {
    uint32_t mask = lanes;
    asm("" : "+r"(mask));
    return mask;
  }
  static Lanes Either(Lanes a, Lanes b) { return static_cast<Lanes>(a | b); }
  static uint32_t CountAtLeast(const uint32_t* p, uint32_t floor) {
    return static_cast<uint32_t>(
        __builtin_popcount(Mask(Reach(_mm512_loadu_si512(p), floor))));
  }
  static Floats Without(Floats v, Lanes lanes) {
    return _mm512_maskz_mov_ps(static_cast<Lanes>(~lanes), v);
  }
  static __m512i IndicesOf(uint32_t base, uint32_t mask) {
    const __m512i lanes = _mm512_add_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32(static_cast<int>(base)));
    return _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask), lanes);
  }
  static void StorePositions(uint16_t* out, uint16_t base, uint32_t mask) {
    // The form with a mask, because g++ 12 warns of its own header otherwise.
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(out),
        _mm512_maskz_cvtepi32_epi16(0xffff, IndicesOf(base, mask)));
  }
  static void StoreIndices(uint32_t* out, uint32_t base, uint32_t mask) {
    _mm512_storeu_si512(out, IndicesOf(base, mask));
  }
  static void StoreKept(float* out, Floats v, uint32_t mask) {
    _mm512_storeu_ps(out,
                     _mm512_maskz_compress_ps(static_cast<__mmask16>(mask), v));
  }
  static void StoreMagnitudes(uint32_t* out, Floats v, uint32_t mask) {
    _mm512_storeu_si512(
        out, _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask),
                                         MagnitudesOf(v)));
  }
};

}  // namespace

const VectorOps kAvx512Ops = Loops<Avx512>::Table("avx512");

}  // namespace tensorlightning::cpu
