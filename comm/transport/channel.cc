#include "comm/transport/channel.h"

#include <algorithm>
#include <boost/asio/ssl/error.hpp>
#include <cstring>
#include <sstream>

#include "comm/crc32c.h"

namespace tensorlightning {
namespace {

std::string PeerName(const Socket& socket) {
  SysError error;
  const asio::generic::stream_protocol::endpoint remote =
      socket.remote_endpoint(error);
  if (error) return "nobody";
  if (remote.protocol().family() == AF_UNIX) return "a Unix socket";
  asio::ip::tcp::endpoint tcp;
  if (remote.size() > tcp.capacity()) return "somebody";
  std::memcpy(tcp.data(), remote.data(), remote.size());
  std::ostringstream text;
  text << tcp;
  return text.str();
}

}  // namespace

std::shared_ptr<Channel> Channel::Make(Strand strand, Socket socket,
                                       Timeouts timeouts, Watchdog& watchdog,
                                       size_t queue) {
  std::shared_ptr<Channel> channel(
      new Channel(std::move(strand), std::move(socket), timeouts, queue));
  watchdog.Watch(channel);
  return channel;
}

Channel::Channel(Strand strand, Socket socket, Timeouts timeouts, size_t queue)
    : strand_(std::move(strand)),
      stream_(std::move(socket)),
      timeouts_(timeouts),
      peer_(PeerName(stream_.socket())),
      queue_(queue),
      next_sent_(strand_) {}

// ---- Reading. ---------------------------------------------------------------

Error Channel::Failure(const char* doing, const SysError& error) {
  if (!closed_) {
    const bool gone = error == asio::error::eof ||
                      error == asio::error::connection_reset ||
                      error == asio::error::broken_pipe;
    Close({ErrorCode::kIo,
           gone ? peer_ + " closed the connection"
                : std::string(doing) + " " + peer_ + ": " + error.message()});
  }
  return why_;
}

Awaitable<Status> Channel::ShakeHandsAsServer(const TlsContext& tls) {
  read_deadline_.Set(timeouts_.handshake);
  const SysError error = co_await stream_.ShakeHandsAsServer(tls);
  read_deadline_.Clear();
  if (error) co_return Failure("no TLS handshake with", error);
  co_return Done{};
}

Awaitable<Status> Channel::ShakeHandsAsClient(const TlsContext& tls,
                                              const std::string& host) {
  read_deadline_.Set(timeouts_.handshake);
  const SysError error = co_await stream_.ShakeHandsAsClient(tls, host);
  read_deadline_.Clear();
  if (error.category() == asio::error::get_ssl_category() && !closed_) {
    // A certificate does not get better by asking again.
    Close({ErrorCode::kRefused,
           "no TLS handshake with " + peer_ + ": " + error.message() +
               " (does it speak TLS, with a certificate for the name it was "
               "called by?)"});
  }
  if (error) co_return Failure("no TLS handshake with", error);
  co_return Done{};
}

size_t Channel::TakeBuffered(std::span<std::byte> to) {
  const size_t taken = std::min(to.size(), buffer_end_ - buffer_begin_);
  if (taken == 0) return 0;
  std::memcpy(to.data(), buffer_.data() + buffer_begin_, taken);
  buffer_begin_ += taken;
  return taken;
}

// Some bytes into `to`; what comes beyond it goes to the buffer, which must be
// empty.
Awaitable<Result<size_t>> Channel::ReadOnce(std::span<std::byte> to) {
  if (closed_) co_return why_;
  if (buffer_.empty()) buffer_.resize(kReadBufferBytes);
  buffer_begin_ = buffer_end_ = 0;
  const std::array<asio::mutable_buffer, 2> into = {
      asio::buffer(to.data(), to.size()), asio::buffer(buffer_)};
  SysError error;
  const size_t got = co_await stream_.ReadSome(into, error);
  if (closed_) co_return why_;
  if (error) co_return Failure("reading from", error);
  received_.fetch_add(got, std::memory_order_relaxed);
  const size_t taken = std::min(got, to.size());
  buffer_end_ = got - taken;
  co_return taken;
}

Awaitable<Status> Channel::Fill(std::span<std::byte> to, uint32_t* crc) {
  while (!to.empty()) {
    size_t got = TakeBuffered(to);
    if (got == 0) {
      read_deadline_.Set(timeouts_.progress);
      const size_t piece = std::min(to.size(), kPieceBytes);
      const Result<size_t> read = co_await ReadOnce(to.first(piece));
      read_deadline_.Clear();
      if (!read.ok()) co_return read.error();
      got = *read;
    }
    if (crc != nullptr) *crc = Crc32c(to.first(got), *crc);
    to = to.subspan(got);
  }
  co_return Done{};
}

Awaitable<Result<FrameHeader>> Channel::ReadHeader(
    std::chrono::milliseconds patience) {
  FrameHeaderBytes bytes;
  if (closed_) co_return why_;
  size_t got = TakeBuffered(bytes);
  if (got == 0) {
    read_deadline_.Set(patience);
    const Result<size_t> read = co_await ReadOnce(bytes);
    read_deadline_.Clear();
    if (!read.ok()) co_return read.error();
    got = *read;
  }
  const std::span<std::byte> rest = std::span(bytes).subspan(got);
  const Status filled = co_await Fill(rest, nullptr);
  if (!filled.ok()) co_return filled.error();
  co_return ParseHeader(bytes);
}

Awaitable<Status> Channel::ReadPayload(std::span<std::byte> to) {
  uint32_t crc = 0;
  Status status = co_await Fill(to, &crc);
  if (!status.ok()) co_return status;
  status = co_await CheckTrailer(crc);
  co_return status;
}

Awaitable<Status> Channel::CheckTrailer(uint32_t crc) {
  uint32_t sent_crc = 0;
  const std::span<std::byte> trailer =
      std::as_writable_bytes(std::span(&sent_crc, 1));
  const Status status = co_await Fill(trailer, nullptr);
  if (!status.ok()) co_return status;
  if (crc != sent_crc) {
    co_return Error{ErrorCode::kCorrupt, "a payload from " + peer_ +
                                             " arrived damaged: its " +
                                             "checksum is wrong"};
  }
  co_return status;
}

Awaitable<Result<Bytes>> Channel::ReadSmall(const FrameHeader& header,
                                            size_t limit) {
  if (header.payload_bytes > limit) {
    co_return Error{ErrorCode::kCorrupt,
                    "a " + std::string(NameOf(header.type)) + " of " +
                        std::to_string(header.payload_bytes) + " bytes from " +
                        peer_ + "; at most " + std::to_string(limit) +
                        " are allowed"};
  }
  // Memory is taken as bytes come: to announce many costs nothing.
  Bytes payload;
  uint32_t crc = 0;
  while (payload.size() < header.payload_bytes) {
    const size_t have = payload.size();
    const size_t piece = std::min(kPieceBytes, header.payload_bytes - have);
    payload.resize(have + piece);
    const Status status = co_await Fill(std::span(payload).last(piece), &crc);
    if (!status.ok()) co_return status.error();
  }
  const Status status = co_await CheckTrailer(crc);
  if (!status.ok()) co_return status.error();
  co_return payload;
}

// ---- Writing. ---------------------------------------------------------------

bool Channel::Send(FrameHeader header, Bytes payload) {
  Outgoing frame{.header = header, .head_bytes = kFrameHeaderBytes};
  frame.owned = std::move(payload);
  frame.body = frame.owned;  // Moving a vector leaves its memory in place.
  return Enqueue(std::move(frame));
}

bool Channel::SendBorrowed(FrameHeader header,
                           std::array<std::byte, Standing::kBytes> prefix,
                           std::span<const std::byte> body) {
  Outgoing frame{.header = header,
                 .head_bytes = kFrameHeaderBytes + prefix.size()};
  std::copy(prefix.begin(), prefix.end(),
            frame.head.begin() + kFrameHeaderBytes);
  frame.body = body;
  return Enqueue(std::move(frame));
}

bool Channel::SendBorrowed(FrameHeader header,
                           std::span<const std::byte> body) {
  Outgoing frame{.header = header, .head_bytes = kFrameHeaderBytes};
  frame.body = body;
  return Enqueue(std::move(frame));
}

void Channel::GrowQueue(size_t frames) {
  if (frames > queue_.capacity()) queue_.set_capacity(frames);
}

bool Channel::Enqueue(Outgoing frame) {
  if (closed_ || close_when_sent_.has_value()) return false;
  if (queue_.full()) {
    Close({ErrorCode::kIo,
           peer_ + " does not read: " + std::to_string(queue_.size()) +
               " frames are waiting for it"});
    return false;
  }
  const size_t prefix = frame.head_bytes - kFrameHeaderBytes;
  frame.header.payload_bytes =
      static_cast<uint32_t>(prefix + frame.body.size());
  const FrameHeaderBytes header = EncodeHeader(frame.header);
  std::copy(header.begin(), header.end(), frame.head.begin());
  queue_.push_back(std::move(frame));
  if (!writing_) {
    writing_ = true;
    WritePiece();
  }
  return true;
}

// Writes from the front frame what is left of it, up to the end of the piece
// of its body whose checksum is known by then.
void Channel::WritePiece() {
  Outgoing& frame = queue_.front();
  const size_t body_bytes = frame.body.size();
  if (written_ == 0) {
    crc_ = Crc32c(
        std::span(frame.head)
            .subspan(kFrameHeaderBytes, frame.head_bytes - kFrameHeaderBytes));
    checksummed_ = 0;
  }
  const size_t body_begin =
      written_ < frame.head_bytes ? 0 : written_ - frame.head_bytes;
  if (checksummed_ < body_bytes && body_begin >= checksummed_) {
    const size_t piece = std::min(kPieceBytes, body_bytes - checksummed_);
    crc_ = Crc32c(frame.body.subspan(checksummed_, piece), crc_);
    checksummed_ += piece;
  }
  const bool whole = checksummed_ == body_bytes;
  if (whole) std::memcpy(frame.trailer.data(), &crc_, sizeof(crc_));

  std::array<asio::const_buffer, 3> parts;
  const auto part = [](const std::byte* from, size_t begin, size_t end) {
    return begin < end ? asio::const_buffer(from + begin, end - begin)
                       : asio::const_buffer();
  };
  parts[0] = part(frame.head.data(), written_, frame.head_bytes);
  parts[1] = part(frame.body.data(), body_begin, checksummed_);
  if (whole) {
    const size_t before = frame.head_bytes + body_bytes;
    parts[2] =
        part(frame.trailer.data(), written_ < before ? 0 : written_ - before,
             frame.trailer.size());
  }
  write_deadline_.Set(timeouts_.progress);
  stream_.WriteSome(
      parts, asio::bind_executor(strand_, [self = shared_from_this()](
                                              SysError error, size_t bytes) {
        self->Wrote(error, bytes);
      }));
}

void Channel::Wrote(SysError error, size_t bytes) {
  write_deadline_.Clear();
  if (closed_) return;
  if (error) {
    (void)Failure("writing to", error);
    return;
  }
  sent_.fetch_add(bytes, std::memory_order_relaxed);
  written_ += bytes;
  const Outgoing& frame = queue_.front();
  if (written_ == frame.head_bytes + frame.body.size() + frame.trailer.size()) {
    FinishFrame();
  }
  if (closed_) return;
  if (queue_.empty()) {
    writing_ = false;
    if (close_when_sent_.has_value()) Close(*close_when_sent_);
    return;
  }
  WritePiece();
}

void Channel::FinishFrame() {
  const FrameHeader header = queue_.front().header;
  queue_.pop_front();
  written_ = 0;
  if (on_sent_) on_sent_(header);
  next_sent_.cancel();
}

Awaitable<void> Channel::NextSent() {
  if (closed_) co_return;
  SysError cancelled;
  next_sent_.expires_at(asio::steady_timer::time_point::max());
  co_await next_sent_.async_wait(Into(cancelled));
}

// ---- The end. ---------------------------------------------------------------

void Channel::Close(Error why) {
  if (closed_) return;
  closed_ = true;
  why_ = std::move(why);
  stream_.Close();
  next_sent_.cancel();
}

void Channel::CloseAfterSending(Error why) {
  if (closed_) return;
  // Who lent us memory may take it back from here on.
  const auto borrowed = [](const Outgoing& frame) {
    return frame.owned.empty() && !frame.body.empty();
  };
  if (!writing_ || borrowed(queue_.front())) {
    Close(std::move(why));
    return;
  }
  queue_.erase(std::remove_if(queue_.begin(), queue_.end(), borrowed),
               queue_.end());
  close_when_sent_ = std::move(why);
}

void Channel::CheckDeadlines(Deadline::Clock::time_point now) {
  if (!LateReading(now) && !write_deadline_.HasPassed(now)) return;
  asio::post(strand_, [self = shared_from_this()] {
    // What was late a moment ago may have come.
    const Deadline::Clock::time_point then = Deadline::Clock::now();
    const bool reading = self->LateReading(then);
    if (!reading && !self->write_deadline_.HasPassed(then)) return;
    self->Close({ErrorCode::kTimedOut,
                 reading ? "nothing came from " + self->peer_ + " in time"
                         : self->peer_ + " took nothing that was sent to it "
                                         "in time"});
  });
}

}  // namespace tensorlightning
