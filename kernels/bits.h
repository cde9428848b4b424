// Packing bits into bytes and taking them out again, lowest bit first.
#ifndef TENSORLIGHTNING_KERNELS_BITS_H_
#define TENSORLIGHTNING_KERNELS_BITS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"

namespace tensorlightning {

static_assert(std::endian::native == std::endian::little,
              "the code is little-endian and is read and written in words");

// Writes bits from `out` on. May touch up to 8 bytes past the last bit.
class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : out_(out) {}

  // Up to 32 bits at a time; bits above `width` must be zero.
  void Write(uint32_t value, uint32_t width) {
    word_ |= uint64_t{value} << filled_;
    filled_ += width;
    std::memcpy(out_, &word_, sizeof(word_));
    const uint32_t bytes = filled_ >> 3;
    out_ += bytes;
    word_ >>= bytes * 8;
    filled_ &= 7;
  }

  // `value` zeros and a one.
  void WriteUnary(uint32_t value) {
    for (; value >= 32; value -= 32) Write(0, 32);
    Write(1u << value, value + 1);
  }

  void WriteRice(uint32_t gap, uint32_t b) {
    WriteUnary(gap >> b);
    Write(gap & ((1u << b) - 1), b);
  }

  void WriteGamma(uint32_t value) {
    const uint32_t log = 31 - static_cast<uint32_t>(std::countl_zero(value));
    WriteUnary(log);
    Write(value & ((1u << log) - 1), log);
  }

  // Pads to a whole byte and returns where the next one goes.
  std::byte* Finish() {
    std::byte* end = out_ + (filled_ > 0 ? 1 : 0);
    return end;
  }

 private:
  std::byte* out_;
  uint64_t word_ = 0;
  uint32_t filled_ = 0;  // 0..7 between calls.
};

// Reads bits of [data, data + bytes). Past the end it reads zeros and
// remembers that it did: check overrun() before trusting what was read.
class BitReader {
 public:
  TL_HOST_DEVICE BitReader(const std::byte* data, size_t bytes)
      : data_(data), bits_(uint64_t{bytes} * 8) {}

  // The next 57 bits or more, lowest first.
  TL_HOST_DEVICE [[gnu::always_inline]] uint64_t Peek() const {
    const uint64_t byte = at_ >> 3;
    uint64_t word = 0;
    if (byte + 8 <= bits_ >> 3) [[likely]] {
      std::memcpy(&word, data_ + byte, 8);
    } else {
      for (uint64_t i = byte; i < bits_ >> 3; ++i) {
        word |= static_cast<uint64_t>(data_[i]) << ((i - byte) * 8);
      }
    }
    return word >> (at_ & 7);
  }
  TL_HOST_DEVICE void Skip(uint32_t width) { at_ += width; }

  TL_HOST_DEVICE uint32_t Read(uint32_t width) {
    const uint64_t word = Peek();
    Skip(width);
    return static_cast<uint32_t>(word & ((uint64_t{1} << width) - 1));
  }

  // Counts zeros up to a one; gives up, overrun, past `limit` of them.
  TL_HOST_DEVICE uint32_t ReadUnary(uint32_t limit) {
    uint32_t zeros = 0;
    for (;;) {
      const uint64_t word = Peek();
      if (word != 0) {
        const auto more = static_cast<uint32_t>(std::countr_zero(word));
        Skip(more + 1);
        return zeros + more;
      }
      zeros += 56;
      Skip(56);
      if (zeros > limit || at_ >= bits_) {
        at_ = bits_ + 1;
        return limit;
      }
    }
  }

  TL_HOST_DEVICE [[gnu::always_inline]] uint32_t ReadRice(uint32_t b, uint32_t limit) {
    // One look is enough for all but the rarest.
    const uint64_t word = Peek();
    const auto quotient = static_cast<uint32_t>(std::countr_zero(word));
    if (quotient + b + 1 <= 57) [[likely]] {
      Skip(quotient + b + 1);
      const auto low =
          static_cast<uint32_t>(word >> (quotient + 1)) & ((1u << b) - 1);
      return (quotient << b) | low;
    }
    const uint32_t high = ReadUnary(limit >> b);
    return (high << b) | Read(b);
  }

  // A number from 1 on; 0 stands for one that does not fit into 32 bits.
  TL_HOST_DEVICE uint32_t ReadGamma() {
    const uint32_t log = ReadUnary(31);
    if (log > 31) return 0;
    return (1u << log) | Read(log);
  }

  TL_HOST_DEVICE bool overrun() const { return at_ > bits_; }
  // Bytes begun so far.
  TL_HOST_DEVICE size_t bytes_read() const { return (at_ + 7) >> 3; }

 private:
  const std::byte* data_;
  uint64_t bits_;
  uint64_t at_ = 0;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_BITS_H_
