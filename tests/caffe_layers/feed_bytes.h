// A feeder's bytes, for tests: written by hand, and read from memory.
#ifndef TENSORLIGHTNING_TESTS_CAFFE_LAYERS_FEED_BYTES_H_
#define TENSORLIGHTNING_TESTS_CAFFE_LAYERS_FEED_BYTES_H_

#include <algorithm>
#include <string>
#include <string_view>

#include "caffe_layers/feed_format.h"

namespace tensorlightning {

template <typename T>
std::string Bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

inline std::string HelloBytes(uint8_t tops) {
  return "TLFD" + Bytes(uint16_t{1}) + Bytes(tops) + std::string(1, '\0');
}

inline std::string TopBytes(uint8_t type, const FeedShape& shape) {
  std::string bytes = Bytes(type) + Bytes(static_cast<uint8_t>(shape.size())) +
                      std::string(2, '\0');
  for (const uint32_t dimension : shape) bytes += Bytes(dimension);
  return bytes;
}

inline std::string FrameBytes(uint8_t kind, uint32_t count) {
  return Bytes(kind) + std::string(3, '\0') + Bytes(count);
}

// Ends as a connection does that is closed.
class MemorySource final : public FeedSource {
 public:
  explicit MemorySource(std::string_view bytes) : left_(bytes) {}

  Status Read(std::span<std::byte> bytes) override {
    if (left_.size() < bytes.size()) return Error{ErrorCode::kIo, "closed"};
    std::copy_n(reinterpret_cast<const std::byte*>(left_.data()), bytes.size(),
                bytes.begin());
    left_.remove_prefix(bytes.size());
    return Done{};
  }
  void Shut() override {}

 private:
  std::string_view left_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_TESTS_CAFFE_LAYERS_FEED_BYTES_H_
