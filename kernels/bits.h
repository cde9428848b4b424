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
    const uint32_t quotient = gap >> b;
    const uint32_t low = gap & ((1u << b) - 1);
    if (quotient + b < 31) [[likely]] {
      Write((1u | low << 1) << quotient, quotient + 1 + b);
    } else {
      WriteUnary(quotient);
      Write(low, b);
    }
  }

  void WriteGamma(uint32_t value) {
    const uint32_t log = 31 - static_cast<uint32_t>(std::countl_zero(value));
    WriteUnary(log);
    Write(value & ((1u << log) - 1), log);
  }

  // Pads to a whole byte and returns where the next one goes.
  std::byte* Finish() const { return out_ + (filled_ > 0 ? 1 : 0); }

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
      : begin_(data), at_(data), end_(data + bytes) {}

  // Brings the buffer to 56 bits or more. Eight bytes are loaded at once, those
  // that don't fit a second time later: the same bits, into the same places.
  TL_HOST_DEVICE [[gnu::always_inline]] void Refill() {
    if (end_ - at_ >= 8) [[likely]] {
      uint64_t word;
      std::memcpy(&word, at_, sizeof(word));
      buffer_ |= word << count_;
      at_ += (63 - count_) / 8;
      count_ |= 56;
      return;
    }
    for (; count_ < 56; count_ += 8) {
      if (at_ < end_) {
        buffer_ |= static_cast<uint64_t>(*at_++) << count_;
      } else {
        padding_ += 8;
      }
    }
  }

  // Up to 32 bits.
  TL_HOST_DEVICE uint32_t Read(uint32_t width) {
    if (count_ < 32) Refill();
    const auto value =
        static_cast<uint32_t>(buffer_ & ((uint64_t{1} << width) - 1));
    Drop(width);
    return value;
  }

  // Counts zeros up to a one; gives up, overrun, past `limit` of them.
  TL_HOST_DEVICE uint32_t ReadUnary(uint32_t limit) {
    uint32_t zeros = 0;
    for (;;) {
      if (count_ < 32) Refill();
      const auto more = static_cast<uint32_t>(std::countr_zero(buffer_));
      if (more < count_) {
        Drop(more + 1);
        return zeros + more;
      }
      zeros += count_;
      Drop(count_);
      if (zeros > limit || overrun()) {
        padding_ += 64;
        return limit;
      }
    }
  }

  // Loops that call Refill() every few codes spare the processor a branch that
  // it can't foresee: whether bits run out just now.
  TL_HOST_DEVICE [[gnu::always_inline]] uint32_t ReadRice(uint32_t b,
                                                          uint32_t limit) {
    // The mark keeps the count below 64; it is never taken for data, since
    // fewer bits than that are accounted for.
    constexpr uint64_t kMark = uint64_t{1} << 63;
    const auto quotient =
        static_cast<uint32_t>(std::countr_zero(buffer_ | kMark));
    const uint32_t length = quotient + 1 + b;
    if (length <= count_) [[likely]] {
      const auto low =
          static_cast<uint32_t>(buffer_ >> (quotient + 1)) & ((1u << b) - 1);
      Drop(length);
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

  TL_HOST_DEVICE bool overrun() const { return padding_ > count_; }
  // Bytes begun so far, if not overrun.
  TL_HOST_DEVICE size_t bytes_read() const {
    const size_t taken = static_cast<size_t>(at_ - begin_) * 8 + padding_;
    return (taken - count_ + 7) / 8;
  }

 private:
  TL_HOST_DEVICE void Drop(uint32_t width) {
    buffer_ >>= width;
    count_ -= width;
  }

  const std::byte* begin_;
  const std::byte* at_;
  const std::byte* end_;
  uint64_t buffer_ = 0;
  uint32_t count_ = 0;    // Bits of the buffer that are accounted for, < 64.
  uint64_t padding_ = 0;  // Zeros made up past the end.
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_BITS_H_
