// A connected socket, with TLS around it or not.
#ifndef TENSORLIGHTNING_COMM_TRANSPORT_STREAM_H_
#define TENSORLIGHTNING_COMM_TRANSPORT_STREAM_H_

#include <array>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <string>

#include "comm/transport/asio.h"
#include "comm/transport/tls.h"

namespace tensorlightning {

// Sets what we want of every socket: no delay of small frames, and an end to
// connections whose other end is gone without a word. Buffer sizes are left
// alone: setting one turns off the kernel's own tuning, which finds the product
// of bandwidth and delay that we can only guess. `congestion`: cubic, bbr, ...
// or empty for the system's.
void SetSocketOptions(Socket& socket, const std::string& congestion);

class Stream {
 public:
  explicit Stream(Socket socket) : socket_(std::move(socket)) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Socket& socket() { return socket_; }

  // At most once, before anything else.
  Awaitable<SysError> ShakeHandsAsServer(const TlsContext& tls);
  // `host`: what the certificate must be for.
  Awaitable<SysError> ShakeHandsAsClient(const TlsContext& tls,
                                         const std::string& host);

  template <typename Buffers>
  Awaitable<size_t> ReadSome(Buffers buffers, SysError& error) {
    return tls_ ? tls_->async_read_some(buffers, Into(error))
                : socket_.async_read_some(buffers, Into(error));
  }

  template <typename Buffers, typename Handler>
  void WriteSome(const Buffers& buffers, Handler&& handler) {
    if (tls_) {
      tls_->async_write_some(buffers, std::forward<Handler>(handler));
    } else {
      socket_.async_write_some(buffers, std::forward<Handler>(handler));
    }
  }

  // At once; what waits ends with an error.
  void Close();

 private:
  using Tls = asio::ssl::stream<Socket&>;

  Socket socket_;
  TlsContext context_;  // Must outlive tls_.
  std::unique_ptr<Tls> tls_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TRANSPORT_STREAM_H_
