// A connection to a feeder: the layer's side, which connects and only reads.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_FEED_SOCKET_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_FEED_SOCKET_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "caffe_layers/feed_format.h"
#include "comm/endpoint.h"

namespace tensorlightning {

class FeedSocket final : public FeedSource {
 public:
  // Tries again while nobody listens there yet. The patience is for this, and
  // for each time that Read() waits for bytes. Ctrl-C ends this wait.
  static Result<std::unique_ptr<FeedSocket>> Connect(
      const Endpoint& endpoint, std::chrono::milliseconds patience);
  ~FeedSocket() override;

  Status Read(std::span<std::byte> bytes) override;
  void Shut() override;

 private:
  FeedSocket(int socket, std::chrono::milliseconds patience);

  // At least one byte.
  Result<size_t> ReadSome(std::span<std::byte> bytes);

  const int socket_;
  const std::chrono::milliseconds patience_;
  std::atomic<bool> shut_{false};
  // What has come and was not asked for yet: many records are small.
  std::vector<std::byte> buffer_;
  std::span<const std::byte> unread_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_FEED_SOCKET_H_
