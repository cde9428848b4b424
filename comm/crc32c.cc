#include "comm/crc32c.h"

#include <nmmintrin.h>
#include <wmmintrin.h>

#include <array>
#include <cstring>

namespace tensorlightning {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;

// Times x, modulo the polynomial. Reflected: the top bit is the power 0.
constexpr uint32_t TimesX(uint32_t value) {
  return (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
}

// tables[k][b]: the CRC of byte b with k zeros behind it, for eight bytes at a
// time.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = TimesX(value);
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t value = tables[k - 1][byte];
      tables[k][byte] = (value >> 8) ^ tables[0][value & 255];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

uint64_t Word(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

// The instruction takes three cycles but one can be started in each, so three
// streams run side by side, each over kStride bytes of its own. Three of the
// long stride fit into 63 KiB: a stream that stays in a page for a while is one
// that the processor fetches ahead of, which doubles the speed on data that is
// in no cache. The others, whose three fit into 4,032 and 384 bytes, serve what
// is left.
constexpr size_t kLongStride = 21504;
constexpr size_t kMiddleStride = 1344;
constexpr size_t kShortStride = 128;

// The product modulo the polynomial.
constexpr uint32_t Times(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; b != 0; b <<= 1) {
    if ((b & 0x80000000) != 0) product ^= a;
    a = TimesX(a);
  }
  return product;
}

// What to multiply a CRC by to move it over `bytes` zeros: x^(8 bytes). 33
// less, since reducing a product of two reflected numbers with the crc32
// instruction is itself a multiplication by x^33.
constexpr uint64_t Over(size_t bytes) {
  uint32_t power = 0x80000000;   // 1
  uint32_t square = 0x40000000;  // x, x^2, x^4, ...
  for (size_t left = 8 * bytes - 33; left != 0; left >>= 1) {
    if ((left & 1) != 0) power = Times(power, square);
    square = Times(square, square);
  }
  return power;
}

[[gnu::target("sse4.2,pclmul")]] inline uint64_t Product(uint64_t a,
                                                         uint64_t b) {
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<int64_t>(a)),
                           _mm_cvtsi64_si128(static_cast<int64_t>(b)), 0);
  return static_cast<uint64_t>(_mm_cvtsi128_si64(product));
}

template <size_t kStride>
[[gnu::target("sse4.2,pclmul")]] inline uint64_t ThreeStreams(
    const std::byte* at, uint64_t crc) {
  static_assert(kStride % sizeof(uint64_t) == 0);
  constexpr uint64_t kOverOne = Over(kStride);
  constexpr uint64_t kOverTwo = Over(2 * kStride);
  uint64_t second = 0;
  uint64_t third = 0;
  for (const std::byte* const end = at + kStride; at != end;
       at += sizeof(uint64_t)) {
    crc = _mm_crc32_u64(crc, Word(at));
    second = _mm_crc32_u64(second, Word(at + kStride));
    third = _mm_crc32_u64(third, Word(at + 2 * kStride));
  }
  const uint64_t moved = Product(crc, kOverTwo) ^ Product(second, kOverOne);
  return third ^ _mm_crc32_u64(0, moved);
}

[[gnu::target("sse4.2,pclmul")]] uint32_t WithInstruction(
    std::span<const std::byte> bytes, uint32_t before) {
  uint64_t crc = ~before;
  while (bytes.size() >= 3 * kLongStride) {
    crc = ThreeStreams<kLongStride>(bytes.data(), crc);
    bytes = bytes.subspan(3 * kLongStride);
  }
  while (bytes.size() >= 3 * kMiddleStride) {
    crc = ThreeStreams<kMiddleStride>(bytes.data(), crc);
    bytes = bytes.subspan(3 * kMiddleStride);
  }
  while (bytes.size() >= 3 * kShortStride) {
    crc = ThreeStreams<kShortStride>(bytes.data(), crc);
    bytes = bytes.subspan(3 * kShortStride);
  }
  while (bytes.size() >= sizeof(uint64_t)) {
    crc = _mm_crc32_u64(crc, Word(bytes.data()));
    bytes = bytes.subspan(sizeof(uint64_t));
  }
  for (const std::byte byte : bytes) {
    crc = _mm_crc32_u8(static_cast<uint32_t>(crc), static_cast<uint8_t>(byte));
  }
  return ~static_cast<uint32_t>(crc);
}

}  // namespace

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before) {
  static const bool has_instruction =
      __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
  return has_instruction ? WithInstruction(bytes, before)
                         : Crc32cPortable(bytes, before);
}

uint32_t Crc32cPortable(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    const uint64_t word = Word(bytes.data()) ^ crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) {
      crc ^= kTables[7 - i][(word >> (8 * i)) & 255];
    }
  }
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(byte)) & 255];
  }
  return ~crc;
}

}  // namespace tensorlightning
