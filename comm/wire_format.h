// Little-endian fields, written one after another and read back from bytes of
// strangers.
//
//   FieldReader in(bytes);
//   const uint32_t rank = in.U32();
//   const std::string name = in.String8();
//   if (!in.Finished()) return Corrupt("Hello");   // too short, or too long
//
// A read past the end gives zeros and is remembered; nothing is out of bounds.
#ifndef TENSORLIGHTNING_COMM_WIRE_FORMAT_H_
#define TENSORLIGHTNING_COMM_WIRE_FORMAT_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensorlightning {

static_assert(std::endian::native == std::endian::little,
              "numbers and vectors are copied to the wire as they are");

class FieldWriter {
 public:
  explicit FieldWriter(std::vector<std::byte>& out) : out_(out) {}

  void U8(uint8_t value) { Number(value); }
  void U16(uint16_t value) { Number(value); }
  void U32(uint32_t value) { Number(value); }
  void U64(uint64_t value) { Number(value); }
  void F64(double value) { Number(value); }
  void Raw(std::span<const std::byte> bytes) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  // A length of one or two bytes, and the text, which must not be longer.
  void String8(std::string_view text) {
    U8(static_cast<uint8_t>(text.size()));
    Raw(std::as_bytes(std::span(text)));
  }
  void String16(std::string_view text) {
    U16(static_cast<uint16_t>(text.size()));
    Raw(std::as_bytes(std::span(text)));
  }

 private:
  template <typename T>
  void Number(T value) {
    Raw(std::as_bytes(std::span(&value, 1)));
  }

  std::vector<std::byte>& out_;
};

// The same into bytes that are there already, for what is written often. They
// must be enough.
class FixedWriter {
 public:
  explicit FixedWriter(std::span<std::byte> out) : rest_(out) {}

  void U8(uint8_t value) { Number(value); }
  void U16(uint16_t value) { Number(value); }
  void U32(uint32_t value) { Number(value); }
  void U64(uint64_t value) { Number(value); }

 private:
  template <typename T>
  void Number(T value) {
    std::memcpy(rest_.data(), &value, sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
  }

  std::span<std::byte> rest_;
};

class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  uint8_t U8() { return Number<uint8_t>(); }
  uint16_t U16() { return Number<uint16_t>(); }
  uint32_t U32() { return Number<uint32_t>(); }
  uint64_t U64() { return Number<uint64_t>(); }
  double F64() { return Number<double>(); }
  // The next n bytes, or none if there are fewer.
  std::span<const std::byte> Raw(size_t n) {
    if (n > rest_.size()) {
      short_ = true;
      rest_ = {};
      return {};
    }
    const std::span<const std::byte> taken = rest_.first(n);
    rest_ = rest_.subspan(n);
    return taken;
  }
  template <size_t kSize>
  void Array(std::array<std::byte, kSize>& out) {
    const std::span<const std::byte> from = Raw(kSize);
    if (!short_) std::copy(from.begin(), from.end(), out.begin());
  }
  std::string String8() { return Text(U8()); }
  std::string String16() { return Text(U16()); }

  size_t left() const { return rest_.size(); }
  bool too_short() const { return short_; }
  // Whether everything was there and nothing is left.
  bool Finished() const { return !short_ && rest_.empty(); }

 private:
  template <typename T>
  T Number() {
    T value{};
    const std::span<const std::byte> from = Raw(sizeof(T));
    if (!short_) std::memcpy(&value, from.data(), sizeof(T));
    return value;
  }
  std::string Text(size_t n) {
    const std::span<const std::byte> from = Raw(n);
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }

  std::span<const std::byte> rest_;
  bool short_ = false;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_WIRE_FORMAT_H_
