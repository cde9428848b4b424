// Reaching an aggregator: names, addresses, sockets.
#ifndef TENSORLIGHTNING_COMM_TRANSPORT_CONNECT_H_
#define TENSORLIGHTNING_COMM_TRANSPORT_CONNECT_H_

#include <chrono>
#include <string>

#include "comm/endpoint.h"
#include "comm/transport/asio.h"
#include "kernels/result.h"

namespace tensorlightning {

// The address of a Unix socket; an error when its path is too long for one.
Result<asio::generic::stream_protocol::endpoint> UnixAddress(
    const std::string& path);

// A socket on `strand`, connected to the first address of the endpoint that
// answers. On errors: whom it tried and what each said. `cancel`: another
// coroutine of the strand cancels it to give up early.
Awaitable<Result<Socket>> Connect(Strand strand, const Endpoint& endpoint,
                                  std::chrono::milliseconds patience,
                                  const std::string& congestion,
                                  asio::steady_timer& cancel);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TRANSPORT_CONNECT_H_
