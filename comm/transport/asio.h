// Boost.Asio, and our short names for what we use of it.
#ifndef TENSORLIGHTNING_COMM_TRANSPORT_ASIO_H_
#define TENSORLIGHTNING_COMM_TRANSPORT_ASIO_H_

// Asio 1.74 needs <utility>, and forgets it.
// clang-format off
#include <utility>
// clang-format on

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>

namespace tensorlightning {

namespace asio = boost::asio;

using Strand = asio::strand<asio::io_context::executor_type>;
// TCP over IPv4 or IPv6, or Unix.
using Socket = asio::generic::stream_protocol::socket;
template <typename T>
using Awaitable = asio::awaitable<T>;
using SysError = boost::system::error_code;

// A completion token: `co_await op(..., Into(ec))` puts errors into ec.
inline auto Into(SysError& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

// Runs `work` on the strand and comes back to where the caller was: at once,
// on this thread, when nobody else is on either. What it throws (for want of
// memory, say) is thrown here, not on the strand, whose thread it would end.
template <typename Work>
Awaitable<void> RunOn(Strand strand, Work work) {
  std::exception_ptr thrown;
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&](auto handler) {
        asio::dispatch(
            strand, [&work, &thrown, handler = std::move(handler)]() mutable {
              try {
                work();
              } catch (...) {
                thrown = std::current_exception();
              }
              const auto home = asio::get_associated_executor(handler);
              asio::dispatch(home, std::move(handler));
            });
      },
      asio::use_awaitable);
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TRANSPORT_ASIO_H_
