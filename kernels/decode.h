// Reading a code (see code_format.h).
//
// Bytes from outside become a Message only through Parse(), which looks at all
// of them: a Message is known to be well-formed, finite and of the expected
// size, so that what is done with it afterwards can't fail and nothing is half
// applied. No function here allocates.
//
//   Result<Message> push = Message::Parse(bytes, centre.size());
//   if (!push.ok()) return push.error();
//   DecodeAdd(*push, centre, 1.0f);
#ifndef TENSORLIGHTNING_KERNELS_DECODE_H_
#define TENSORLIGHTNING_KERNELS_DECODE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/quantise.h"
#include "kernels/result.h"

namespace tensorlightning {

// A view of valid code bytes, which must outlive it.
class Message {
 public:
  // kCorrupt: not a code of `entries` entries. kNotFinite: it is, but carries
  // NaN or Inf; the error says how many and where the first is.
  static Result<Message> Parse(std::span<const std::byte> bytes,
                               size_t entries);

  size_t entries() const { return entries_; }
  size_t kept() const { return kept_; }
  ValueCode value_code() const { return code_; }
  // Whether some value may be 2^100 or more: lossless, but nothing to be added
  // to a centre or a view.
  bool huge() const { return huge_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  Message(std::span<const std::byte> bytes, size_t entries, size_t kept,
          ValueCode code, bool huge)
      : bytes_(bytes),
        entries_(entries),
        kept_(kept),
        code_(code),
        huge_(huge) {}

  std::span<const std::byte> bytes_;
  size_t entries_;
  size_t kept_;
  ValueCode code_;
  bool huge_;
};

// y[i] += scale * value of i, for every entry i that the message keeps.
// y.size() must be message.entries(); another size ends the program.
void DecodeAdd(const Message& message, std::span<float> y, float scale);

// The same into two vectors at once, unscaled: an aggregator's centre and its
// view of the sender.
void DecodeAddBoth(const Message& message, std::span<float> a,
                   std::span<float> b);

// Writes the indices and values that the message keeps, in ascending order.
// Both spans must have room for message.kept().
void DecodeEntries(const Message& message, std::span<uint32_t> indices,
                   std::span<float> values);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_DECODE_H_
