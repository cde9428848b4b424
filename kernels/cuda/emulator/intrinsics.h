// CUDA's device functions on single values: bits, conversions, arithmetic with
// a stated rounding, min and max. The same bits as on the device.
#ifndef KERNELS_CUDA_EMULATOR_INTRINSICS_H_
#define KERNELS_CUDA_EMULATOR_INTRINSICS_H_

// The names and types are CUDA's.
// NOLINTBEGIN(bugprone-reserved-identifier,google-runtime-int)

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
// The lowest bit's position from 1; 0 if none.
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}

inline unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x)))
             << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}

inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(uint64_t{x} * y >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) << (shift & 31) >>
                               32);
}

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }

namespace tensorlightning::cuda::emulator::internal {

// Keeps the compiler from contracting a product and a sum into one rounding,
// whatever -ffp-contract says: the _rn functions promise that.
inline float Rounded(float x) {
#ifdef __x86_64__
  asm("" : "+x"(x));
#else
  asm("" : "+w"(x));
#endif
  return x;
}

// CUDA saturates, and turns NaN into 0.
template <class Integer>
Integer Saturate(double x) {
  using Limits = std::numeric_limits<Integer>;
  if (std::isnan(x)) return 0;
  if (x <= static_cast<double>(Limits::min())) return Limits::min();
  if (x >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<Integer>(x);
}

}  // namespace tensorlightning::cuda::emulator::internal

inline float __fadd_rn(float x, float y) {
  return tensorlightning::cuda::emulator::internal::Rounded(x + y);
}
inline float __fsub_rn(float x, float y) {
  return tensorlightning::cuda::emulator::internal::Rounded(x - y);
}
inline float __fmul_rn(float x, float y) {
  return tensorlightning::cuda::emulator::internal::Rounded(x * y);
}
inline float __fdiv_rn(float x, float y) {
  return tensorlightning::cuda::emulator::internal::Rounded(x / y);
}
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }

inline int __float2int_rn(float x) {
  return tensorlightning::cuda::emulator::internal::Saturate<int>(
      std::nearbyint(x));
}
inline int __float2int_rz(float x) {
  return tensorlightning::cuda::emulator::internal::Saturate<int>(
      std::trunc(x));
}
inline unsigned __float2uint_rn(float x) {
  return tensorlightning::cuda::emulator::internal::Saturate<unsigned>(
      std::nearbyint(x));
}
inline unsigned __float2uint_rz(float x) {
  return tensorlightning::cuda::emulator::internal::Saturate<unsigned>(
      std::trunc(x));
}
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

template <class T>
T __ldg(const T* address) {
  return *address;
}

#define TL_EMULATOR_MIN_MAX(result, left, right)           \
  inline constexpr result min(left a, right b) {           \
    return static_cast<result>(b) < static_cast<result>(a) \
               ? static_cast<result>(b)                    \
               : static_cast<result>(a);                   \
  }                                                        \
  inline constexpr result max(left a, right b) {           \
    return static_cast<result>(a) < static_cast<result>(b) \
               ? static_cast<result>(b)                    \
               : static_cast<result>(a);                   \
  }

// The overloads that CUDA has; mixed signs compare as unsigned there too.
TL_EMULATOR_MIN_MAX(int, int, int)
TL_EMULATOR_MIN_MAX(unsigned, unsigned, unsigned)
TL_EMULATOR_MIN_MAX(unsigned, int, unsigned)
TL_EMULATOR_MIN_MAX(unsigned, unsigned, int)
TL_EMULATOR_MIN_MAX(long, long, long)
TL_EMULATOR_MIN_MAX(unsigned long, unsigned long, unsigned long)
TL_EMULATOR_MIN_MAX(long long, long long, long long)
TL_EMULATOR_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)

#undef TL_EMULATOR_MIN_MAX

// A NaN loses against a number, as with fminf.
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }

// NOLINTEND(bugprone-reserved-identifier,google-runtime-int)

#endif  // KERNELS_CUDA_EMULATOR_INTRINSICS_H_
