// Frames of many MiB from one process to another: what a Channel leaves of the
// loopback's speed, with checksums and, if asked for, with TLS.
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <cstdint>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/comm.h"
#include "bench/comm_run.h"
#include "bench/measure.h"
#include "comm/endpoint.h"
#include "comm/transport/channel.h"
#include "comm/transport/connect.h"
#include "comm/transport/listen.h"
#include "comm/transport/thread_pool.h"

namespace tensorlightning::bench {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{20'000};
constexpr size_t kQueue = 4;

// ---- The receiving end. -----------------------------------------------------

// The cipher of the last handshake; OpenSSL's callback has no room for more.
std::string& Cipher() {
  static std::string cipher = "none";
  return cipher;
}

void NoteCipher(const SSL* tls, int where, int) {
  if ((where & SSL_CB_HANDSHAKE_DONE) != 0) Cipher() = SSL_get_cipher(tls);
}

struct Received {
  uint64_t bytes = 0;
  double seconds = 0;  // From the first header, which arrives ahead of its
                       // frame, to the end of the last payload.
};

// Until a frame says that it was the last one.
Awaitable<Result<Received>> Receive(std::shared_ptr<Channel> channel,
                                    TlsContext tls) {
  if (tls != nullptr) {
    const Status status = co_await channel->ShakeHandsAsServer(tls);
    if (!status.ok()) co_return status.error();
  }
  std::vector<std::byte> payload;
  Received received;
  double begin = 0;
  while (true) {
    const Result<FrameHeader> header = co_await channel->ReadHeader(kPatience);
    if (!header.ok()) co_return header.error();
    if (header->type == FrameType::kLeave) co_return received;
    payload.resize(header->payload_bytes);
    if (begin == 0) begin = Seconds(CLOCK_MONOTONIC);
    const Status read = co_await channel->ReadPayload(payload);
    if (!read.ok()) co_return read.error();
    received.bytes += payload.size();
    received.seconds = Seconds(CLOCK_MONOTONIC) - begin;
  }
}

// ---- The sending end. -------------------------------------------------------

struct Sending {
  Endpoint to;
  std::string congestion;
  TlsContext tls;  // None: plain.
  size_t frame_bytes = 0;
  milliseconds duration{0};
};

Awaitable<Status> Send(Strand strand, Watchdog& watchdog,
                       const Sending& sending) {
  asio::steady_timer timer(strand);
  Result<Socket> socket = co_await Connect(strand, sending.to, kPatience,
                                           sending.congestion, timer);
  if (!socket.ok()) co_return socket.error();
  const std::shared_ptr<Channel> channel =
      Channel::Make(strand, std::move(*socket), Timeouts{}, watchdog, kQueue);
  if (sending.tls != nullptr) {
    const Status status =
        co_await channel->ShakeHandsAsClient(sending.tls, sending.to.host);
    if (!status.ok()) co_return status;
  }
  std::vector<std::byte> body(sending.frame_bytes);
  for (size_t i = 0; i < body.size(); ++i) {
    body[i] = static_cast<std::byte>(i * 2654435761U >> 24);
  }
  const auto end = std::chrono::steady_clock::now() + sending.duration;
  size_t queued = 0;
  const auto send = [&] {
    queued += channel->SendBorrowed({FrameType::kState}, body) ? 1 : 0;
  };
  channel->OnSent([&](const FrameHeader&) {
    --queued;
    if (std::chrono::steady_clock::now() < end) send();
    if (queued == 0) timer.cancel();
  });
  timer.expires_after(sending.duration + kPatience);
  // One is written while the next one waits: the socket never runs dry.
  send();
  send();
  SysError cancelled;
  co_await timer.async_wait(Into(cancelled));
  channel->OnSent({});
  if (queued > 0) {
    channel->Close({ErrorCode::kTimedOut, "the receiver is too slow"});
    co_return channel->why();
  }
  // The receiver closes: who does so before having read all that has come (TLS
  // has sent tickets) makes the other end forget what it has not read yet.
  channel->Send({FrameType::kLeave});
  const Result<FrameHeader> closed = co_await channel->ReadHeader(kPatience);
  if (!channel->closed()) {
    co_return Error{ErrorCode::kCorrupt, "the receiver sends frames"};
  }
  co_return Done{};
}

}  // namespace

Status ReceiveBulk(Arguments arguments) {
  std::string congestion;
  std::string certificate;
  std::string key;
  Flags flags("bench/comm bulk-receive", "Takes frames from one sender.");
  flags.Add("congestion", &congestion, "NAME", "TCP's congestion control");
  flags.Add("tls-certificate", &certificate, "FILE", "PEM; turns TLS on");
  flags.Add("tls-key", &key, "FILE", "PEM; its key");
  Status parsed = Parse(flags, arguments);
  if (!parsed.ok()) return parsed;
  TlsContext tls;
  if (!certificate.empty()) {
    Result<TlsContext> made = MakeServerTls(certificate, key);
    if (!made.ok()) return made.error();
    tls = std::move(*made);
    SSL_CTX_set_info_callback(tls->native_handle(), NoteCipher);
  }

  StayOnCore(kServerCore);
  ThreadPool pool(1);
  std::promise<std::pair<Strand, std::shared_ptr<Channel>>> accepted;
  bool taken = false;
  Result<std::shared_ptr<Listener>> listener = Listener::Open(
      pool, {"127.0.0.1", 0, ""}, congestion,
      [&](const Strand& strand, Socket socket) {
        if (std::exchange(taken, true)) return;
        accepted.set_value(
            {strand, Channel::Make(strand, std::move(socket), Timeouts{},
                                   pool.watchdog(), kQueue)});
      });
  if (!listener.ok()) return listener.error();
  std::cout << (*listener)->endpoint().ToString() << "\n" << std::flush;
  auto connection = accepted.get_future();
  if (connection.wait_for(kPatience) != std::future_status::ready) {
    return Error{ErrorCode::kTimedOut, "nobody came to send"};
  }
  const auto [strand, channel] = connection.get();
  const Result<Received> received = RunToEnd(strand, Receive(channel, tls));
  if (!received.ok()) return received.error();
  Output().Info("received", {{"bytes", received->bytes},
                             {"seconds", received->seconds},
                             {"cpu_seconds", Seconds(CLOCK_PROCESS_CPUTIME_ID)},
                             {"cipher", Cipher()}});
  return Done{};
}

Status SendBulk(Arguments arguments) {
  std::string to;
  std::string authority;
  int64_t mib = 64;
  Sending sending;
  sending.duration = milliseconds(1000);
  Flags flags("bench/comm bulk-send", "Sends frames to one receiver.");
  flags.Add("to", &to, "HOST:PORT", "where it listens");
  flags.Add("congestion", &sending.congestion, "NAME",
            "TCP's congestion control");
  flags.Add("tls-authority", &authority, "FILE", "PEM; turns TLS on");
  flags.Add("mib", &mib, "N", "size of a frame");
  flags.Add("duration", &sending.duration, "TIME",
            "for how long to begin more");
  Status parsed = Parse(flags, arguments);
  if (!parsed.ok()) return parsed;
  Result<Endpoint> endpoint = Endpoint::Parse(to);
  if (!endpoint.ok()) return endpoint.error();
  sending.to = *endpoint;
  sending.frame_bytes = static_cast<size_t>(mib) << 20;
  if (!authority.empty()) {
    Result<TlsContext> made = MakeClientTls(authority);
    if (!made.ok()) return made.error();
    sending.tls = std::move(*made);
  }
  StayOnCore(kClientCore);
  ThreadPool pool(1);
  const Strand strand = pool.MakeStrand();
  Status sent = RunToEnd(strand, Send(strand, pool.watchdog(), sending));
  if (!sent.ok()) return sent;
  Output().Info("sent", {{"cpu_seconds", Seconds(CLOCK_PROCESS_CPUTIME_ID)}});
  return Done{};
}

}  // namespace tensorlightning::bench
