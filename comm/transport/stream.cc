#include "comm/transport/stream.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/ssl/host_name_verification.hpp>
#include <chrono>

namespace tensorlightning {
namespace {

// The kernel gives up on a connection whose bytes were not acknowledged for
// this long.
constexpr std::chrono::milliseconds kUnacknowledged{60'000};

void SetOption(Socket& socket, int level, int name, int value) {
  // What a socket does not know (a Unix one, TCP's) it does not need.
  (void)::setsockopt(socket.native_handle(), level, name, &value,
                     sizeof(value));
}

}  // namespace

void SetSocketOptions(Socket& socket, const std::string& congestion) {
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT,
            static_cast<int>(kUnacknowledged.count()));
  if (!congestion.empty()) {
    (void)::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_CONGESTION,
                       congestion.data(), congestion.size());
  }
}

Awaitable<SysError> Stream::ShakeHandsAsServer(const TlsContext& tls) {
  context_ = tls;
  tls_ = std::make_unique<Tls>(socket_, *context_);
  SysError error;
  co_await tls_->async_handshake(asio::ssl::stream_base::server, Into(error));
  co_return error;
}

Awaitable<SysError> Stream::ShakeHandsAsClient(const TlsContext& tls,
                                               const std::string& host) {
  context_ = tls;
  tls_ = std::make_unique<Tls>(socket_, *context_);
  SSL_set_tlsext_host_name(tls_->native_handle(), host.c_str());
  tls_->set_verify_callback(asio::ssl::host_name_verification(host));
  SysError error;
  co_await tls_->async_handshake(asio::ssl::stream_base::client, Into(error));
  co_return error;
}

void Stream::Close() {
  SysError ignored;
  socket_.shutdown(asio::socket_base::shutdown_both, ignored);
  socket_.close(ignored);
}

}  // namespace tensorlightning
