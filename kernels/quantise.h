// Values as few bits: float32, bfloat16, and 8, 4 or 2 bits with one scale per
// chunk. The same functions run on the CPU and in CUDA kernels.
//
// The small codes have no zero: level l in 1..2^(bits-1) and a sign stand for
// +-l * step. A value that rounds to zero is not sent at all (it stays in the
// residual), so no bit is spent on saying "nothing".
//
// What Quantise() promises, for every finite value v and q = Dequantise(...):
//   * v - q is exact in float32. The rounding error that goes back into the
//     residual is the error to the bit, and (v - q) + q == v. It holds because
//     q is within a factor of two of v (Sterbenz), which in turn needs `step`
//     to have at most 8 significant bits: l * step is then exact.
//   * q is finite: steps are rounded down, bfloat16 saturates.
//   * the result depends on nothing but the arguments, on every machine, as
//     long as nobody contracts a * b + c or flushes denormals
//     (ScopedFloatMode).
#ifndef TENSORLIGHTNING_KERNELS_QUANTISE_H_
#define TENSORLIGHTNING_KERNELS_QUANTISE_H_

#include <bit>
#include <cstdint>

namespace tensorlightning {

enum class ValueCode : uint8_t {
  kFloat32 = 0,
  kBfloat16 = 1,
  kBits8 = 2,
  kBits4 = 3,
  kBits2 = 4,
};
inline constexpr int kValueCodes = 5;

constexpr uint32_t ValueBits(ValueCode code) {
  switch (code) {
    case ValueCode::kFloat32:
      return 32;
    case ValueCode::kBfloat16:
      return 16;
    case ValueCode::kBits8:
      return 8;
    case ValueCode::kBits4:
      return 4;
    case ValueCode::kBits2:
      return 2;
  }
  return 0;
}

constexpr bool HasScale(ValueCode code) { return ValueBits(code) <= 8; }

// The largest level: 128, 8 or 2.
constexpr uint32_t LevelsOf(ValueCode code) {
  return 1u << (ValueBits(code) - 1);
}

// A float's magnitude as an integer that orders the same way.
inline constexpr uint32_t kMagnitudeMask = 0x7fffffffu;
inline constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr uint32_t MagnitudeBits(float value) {
  return std::bit_cast<uint32_t>(value) & kMagnitudeMask;
}

// The upper half of a float: what travels for a scale or a bfloat16.
constexpr float FromUpperHalf(uint32_t half) {
  return std::bit_cast<float>(half << 16);
}

// The step of a chunk whose largest magnitude is `largest`, as the 16 bits that
// travel. 0 when the chunk is too small to be expressed: nothing is sent then.
constexpr uint32_t ScaleFor(ValueCode code, float largest) {
  const float step = largest / static_cast<float>(LevelsOf(code));
  return std::bit_cast<uint32_t>(step) >> 16;
}

struct Quantised {
  uint32_t symbol;  // ValueBits(code) bits.
  bool kept;        // false: rounds to zero, not to be sent.
};

constexpr Quantised QuantiseBfloat16(uint32_t bits) {
  const uint32_t sign = bits & ~kMagnitudeMask;
  const uint32_t magnitude = bits & kMagnitudeMask;
  // Round to nearest, ties to even; a carry past the largest saturates.
  uint32_t half = (magnitude + 0x7fffu + ((magnitude >> 16) & 1u)) >> 16;
  const uint32_t largest = (kInfinityBits >> 16) - 1;
  half = half > largest ? largest : half;
  return {half | (sign >> 16), half != 0};
}

// Signs are as good as random, so that a branch on one would be guessed wrong
// every other time: they are moved as bits.
constexpr Quantised QuantiseLevel(ValueCode code, float value, float step) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const float ratio = std::bit_cast<float>(bits & kMagnitudeMask) / step;
  // Adding and removing 2^23 rounds to the nearest whole, ties to even.
  const float whole = (ratio + 8388608.0f) - 8388608.0f;
  const auto most = static_cast<float>(LevelsOf(code));
  const auto level = static_cast<uint32_t>(whole < most ? whole : most);
  const uint32_t sign = bits >> 31 << (ValueBits(code) - 1);
  return {(level - 1) | sign, level != 0};
}

constexpr Quantised Quantise(ValueCode code, float value, float step) {
  if (code == ValueCode::kFloat32) {
    return {std::bit_cast<uint32_t>(value), value != 0};
  }
  if (code == ValueCode::kBfloat16) {
    return QuantiseBfloat16(std::bit_cast<uint32_t>(value));
  }
  return QuantiseLevel(code, value, step);
}

constexpr float Dequantise(ValueCode code, uint32_t symbol, float step) {
  if (code == ValueCode::kFloat32) return std::bit_cast<float>(symbol);
  if (code == ValueCode::kBfloat16) return FromUpperHalf(symbol);
  const uint32_t levels = LevelsOf(code);
  const float magnitude =
      static_cast<float>((symbol & (levels - 1)) + 1) * step;
  const uint32_t sign = (symbol & levels) << (32 - ValueBits(code));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_QUANTISE_H_
