// A connection that carries frames.
//
//   ReadHeader -> look at it -> ReadPayload       one reader, a coroutine
//   Send ... Send ... Send                        queued, written in order
//
// All of it on one strand, which the channel is given. The reader decides where
// a payload goes before it is read: bytes are copied once, from the kernel to
// their place, and memory is taken only for lengths that somebody has found
// acceptable. Header, payload and checksum leave in one gathered write; of
// large payloads the checksum is computed piece by piece, just before a piece
// is copied by the kernel, while it is in the cache.
//
// Everything has a deadline. A channel that fails, or is closed, stays closed:
// why() says for what reason, and the reader wakes up with that error.
#ifndef TENSORLIGHTNING_COMM_TRANSPORT_CHANNEL_H_
#define TENSORLIGHTNING_COMM_TRANSPORT_CHANNEL_H_

#include <array>
#include <atomic>
#include <boost/circular_buffer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/frame.h"
#include "comm/messages.h"
#include "comm/transport/asio.h"
#include "comm/transport/stream.h"
#include "comm/transport/timeouts.h"
#include "comm/transport/watchdog.h"
#include "kernels/result.h"

namespace tensorlightning {

class Channel : public Watched, public std::enable_shared_from_this<Channel> {
 public:
  // `socket` must run on `strand`. `queue`: how many frames may wait to be
  // written.
  static std::shared_ptr<Channel> Make(Strand strand, Socket socket,
                                       Timeouts timeouts, Watchdog& watchdog,
                                       size_t queue);
  ~Channel() override = default;

  const Strand& strand() const { return strand_; }
  // Whom it connects to, for logs: "10.0.0.5:41034".
  const std::string& peer() const { return peer_; }

  // Unless Established() is called in time, the channel closes, however busily
  // the other end sends a byte now and then.
  void EstablishWithin(std::chrono::milliseconds patience) {
    establish_deadline_.Set(patience);
  }
  void Established() { establish_deadline_.Clear(); }

  Awaitable<Status> ShakeHandsAsServer(const TlsContext& tls);
  Awaitable<Status> ShakeHandsAsClient(const TlsContext& tls,
                                       const std::string& host);

  // Waits for a frame to begin for as long as `patience`, then for the rest of
  // its header for as long as timeouts.progress.
  Awaitable<Result<FrameHeader>> ReadHeader(std::chrono::milliseconds patience);
  // The payload of the header just read; to.size() is header.payload_bytes. An
  // error when the checksum is wrong.
  Awaitable<Status> ReadPayload(std::span<std::byte> to);
  // For payloads of at most `limit` bytes; takes memory only as they come.
  Awaitable<Result<Bytes>> ReadSmall(const FrameHeader& header, size_t limit);

  // Queues a frame; false when the channel is closed, or closes for lack of
  // room. header.payload_bytes is filled in.
  bool Send(FrameHeader header, Bytes payload = {});
  // The same without a copy: `body` must stay as it is until on_sent() was
  // called with the header, or the channel is closed. `prefix` is copied.
  bool SendBorrowed(FrameHeader header,
                    std::array<std::byte, Standing::kBytes> prefix,
                    std::span<const std::byte> body);
  bool SendBorrowed(FrameHeader header, std::span<const std::byte> body);
  // Called on the strand when the last byte of a frame has left.
  void OnSent(std::function<void(const FrameHeader&)> on_sent) {
    on_sent_ = std::move(on_sent);
  }
  // Waits until the next frame has left, or the channel is closed. With several
  // threads, the answer to a frame may be here before the news that the frame
  // has left: who has lent memory to it waits for that first.
  Awaitable<void> NextSent();

  // At once. What is still queued is not sent.
  void Close(Error why);
  // Once what is queued is sent, but for frames with borrowed memory, or
  // timeouts.progress has passed.
  void CloseAfterSending(Error why);
  bool closed() const { return closed_; }
  const Error& why() const { return why_; }

  // More room in the queue of frames.
  void GrowQueue(size_t frames);

  uint64_t bytes_sent() const { return sent_.load(std::memory_order_relaxed); }
  uint64_t bytes_received() const {
    return received_.load(std::memory_order_relaxed);
  }

  void CheckDeadlines(Deadline::Clock::time_point now) override;

 private:
  static constexpr size_t kReadBufferBytes = size_t{8} << 10;
  // What is read, written and checksummed at a time: fits a cache, and is large
  // enough that the two ends of a fast connection seldom wait for each other.
  static constexpr size_t kPieceBytes = size_t{512} << 10;

  struct Outgoing {
    FrameHeader header;
    size_t head_bytes;  // The header, and the prefix if there is one.
    std::array<std::byte, kFrameHeaderBytes + Standing::kBytes> head{};
    Bytes owned{};
    std::span<const std::byte> body{};
    std::array<std::byte, kFrameTrailerBytes> trailer{};
  };

  Channel(Strand strand, Socket socket, Timeouts timeouts, size_t queue);

  bool Enqueue(Outgoing frame);
  void WritePiece();
  void Wrote(SysError error, size_t bytes);
  void FinishFrame();

  // Reads into the tail of `to` and, what is more, into the buffer, until `to`
  // is full.
  Awaitable<Status> Fill(std::span<std::byte> to, uint32_t* crc);
  // Of a payload whose sum is `crc`.
  Awaitable<Status> CheckTrailer(uint32_t crc);
  Awaitable<Result<size_t>> ReadOnce(std::span<std::byte> to);
  size_t TakeBuffered(std::span<std::byte> to);
  bool LateReading(Deadline::Clock::time_point now) const {
    return read_deadline_.HasPassed(now) || establish_deadline_.HasPassed(now);
  }
  Error Failure(const char* doing, const SysError& error);

  Strand strand_;
  Stream stream_;
  Timeouts timeouts_;
  std::string peer_;

  std::vector<std::byte> buffer_;  // What was read beyond what was wanted.
  size_t buffer_begin_ = 0;
  size_t buffer_end_ = 0;
  Deadline read_deadline_;
  Deadline establish_deadline_;

  boost::circular_buffer<Outgoing> queue_;
  bool writing_ = false;
  size_t written_ = 0;      // Of the frame at the front.
  size_t checksummed_ = 0;  // Of its body.
  uint32_t crc_ = 0;
  Deadline write_deadline_;
  std::function<void(const FrameHeader&)> on_sent_;
  asio::steady_timer next_sent_;  // Cancelled by every frame that leaves.

  bool closed_ = false;
  std::optional<Error> close_when_sent_;
  Error why_{ErrorCode::kIo, "open"};
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> received_{0};
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TRANSPORT_CHANNEL_H_
