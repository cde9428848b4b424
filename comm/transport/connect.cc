#include "comm/transport/connect.h"

#include <sys/un.h>

#include <memory>
#include <vector>

#include "comm/transport/stream.h"

namespace tensorlightning {
namespace {

using Address = asio::generic::stream_protocol::endpoint;

Awaitable<Result<std::vector<Address>>> Resolve(
    const Endpoint& endpoint,
    const std::shared_ptr<asio::ip::tcp::resolver>& resolver) {
  if (endpoint.is_unix()) {
    const Result<Address> address = UnixAddress(endpoint.unix_path);
    if (!address.ok()) co_return address.error();
    co_return std::vector<Address>{*address};
  }
  SysError error;
  const asio::ip::tcp::resolver::results_type found =
      co_await resolver->async_resolve(
          endpoint.host, std::to_string(endpoint.port), Into(error));
  if (error) {
    co_return Error{ErrorCode::kIo,
                    "no address for " + endpoint.host + ": " + error.message()};
  }
  std::vector<Address> addresses;
  for (const auto& entry : found) addresses.emplace_back(entry.endpoint());
  co_return addresses;
}

}  // namespace

Result<Address> UnixAddress(const std::string& path) {
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Error{ErrorCode::kInvalidArgument,
                 "unix:" + path + ": the path of a Unix socket has 1 to " +
                     std::to_string(sizeof(address.sun_path) - 1) + " bytes"};
  }
  return Address(asio::local::stream_protocol::endpoint(path));
}

Awaitable<Result<Socket>> Connect(Strand strand, const Endpoint& endpoint,
                                  std::chrono::milliseconds patience,
                                  const std::string& congestion,
                                  asio::steady_timer& cancel) {
  const auto resolver = std::make_shared<asio::ip::tcp::resolver>(strand);
  const auto socket = std::make_shared<Socket>(strand);
  const auto expired = std::make_shared<bool>(false);
  // When the timer ends, by itself or by being cancelled, so does the attempt.
  cancel.expires_after(patience);
  cancel.async_wait([resolver, socket, expired](SysError) {
    *expired = true;
    SysError ignored;
    resolver->cancel();
    socket->close(ignored);
  });

  const Result<std::vector<Address>> addresses =
      co_await Resolve(endpoint, resolver);
  std::string reasons;
  if (!addresses.ok()) {
    reasons = addresses.error().message;
  } else {
    for (const Address& address : *addresses) {
      if (*expired) break;
      SysError error;
      socket->close(error);
      co_await socket->async_connect(address, Into(error));
      if (!error && !*expired) {
        SetSocketOptions(*socket, congestion);
        // The waiting timer keeps the empty shell of the socket.
        Socket connected = std::move(*socket);
        cancel.cancel();
        co_return connected;
      }
      if (!reasons.empty()) reasons += "; ";
      reasons += error.message();
    }
  }
  if (*expired) reasons = "no answer";
  cancel.cancel();
  co_return Error{
      *expired ? ErrorCode::kTimedOut : ErrorCode::kIo,
      "can't reach the aggregator at " + endpoint.ToString() + ": " + reasons};
}

}  // namespace tensorlightning
