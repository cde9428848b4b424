// Any bytes at all, as a message from another machine: Parse() answers with a
// message or an error, and what it accepts can be applied.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/decode.h"
#include "kernels/quantise.h"

namespace tensorlightning {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

// The first four bytes are the receiver's number of entries, the rest is the
// message.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint32_t kMostEntries = 1 << 18;
  uint32_t entries = 0;
  if (size < sizeof(entries)) return 0;
  std::memcpy(&entries, data, sizeof(entries));
  entries %= kMostEntries;
  // A copy of exactly this size, so that the sanitizer sees any byte too far.
  const std::vector<std::byte> bytes(
      reinterpret_cast<const std::byte*>(data) + sizeof(entries),
      reinterpret_cast<const std::byte*>(data) + size);

  const Result<Message> message = Message::Parse(bytes, entries);
  if (!message.ok()) {
    Require(!message.error().message.empty());
    return 0;
  }
  Require(message->entries() == entries && message->kept() <= entries);
  std::vector<uint32_t> indices(message->kept());
  std::vector<float> values(message->kept());
  DecodeEntries(*message, indices, values);
  for (size_t i = 0; i < indices.size(); ++i) {
    Require(indices[i] < entries);
    Require(i == 0 || indices[i - 1] < indices[i]);
    Require(MagnitudeBits(values[i]) < kInfinityBits);
  }
  std::vector<float> y(entries);
  DecodeAdd(*message, y, 1.0f);
  for (size_t i = 0; i < indices.size(); ++i)
    Require(y[indices[i]] == values[i]);
  return 0;
}

}  // namespace tensorlightning
