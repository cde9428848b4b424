#include "comm/transport/connect.h"

#include <sys/un.h>

#include <memory>
#include <vector>

#include "comm/transport/stream.h"

namespace tensorlightning {
namespace {

using Address = asio::generic::stream_protocol::endpoint;

// What the timer ends: by itself when the time is up, or cancelled by whoever
// has lost interest.
struct Attempt {
  explicit Attempt(const Strand& strand) : socket(strand) {}

  void End(SysError error) {
    if (over) return;
    (error ? cancelled : expired) = true;
    SysError ignored;
    socket.close(ignored);
  }

  Socket socket;
  bool over = false;  // The timer is somebody else's now.
  bool expired = false;
  bool cancelled = false;
};

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
  const auto resolving = std::make_shared<Attempt>(strand);
  cancel.expires_after(patience);
  cancel.async_wait([resolver, resolving](SysError error) {
    resolving->End(error);
    resolver->cancel();
  });
  const Result<std::vector<Address>> addresses =
      co_await Resolve(endpoint, resolver);
  std::string reasons;
  bool cancelled = resolving->cancelled;
  if (!addresses.ok()) reasons = addresses.error().message;

  // Each address has its share of the time: one that never answers must not
  // hide the others.
  const size_t count = addresses.ok() ? addresses->size() : 0;
  for (size_t i = 0; i < count && !cancelled; ++i) {
    const auto attempt = std::make_shared<Attempt>(strand);
    resolving->over = true;
    cancel.expires_after(patience / count);
    cancel.async_wait([attempt](SysError error) { attempt->End(error); });
    SysError error;
    co_await attempt->socket.async_connect((*addresses)[i], Into(error));
    cancelled = attempt->cancelled;
    const bool connected = !error && attempt->socket.is_open();
    attempt->over = true;
    if (connected && !cancelled) {
      SetSocketOptions(attempt->socket, congestion);
      Socket socket = std::move(attempt->socket);
      cancel.cancel();
      co_return socket;
    }
    if (!reasons.empty()) reasons += "; ";
    reasons += attempt->expired ? "no answer" : error.message();
  }
  resolving->over = true;
  cancel.cancel();
  if (reasons.empty()) reasons = cancelled ? "cancelled" : "no address";
  co_return Error{ErrorCode::kIo, "can't reach the aggregator at " +
                                      endpoint.ToString() + ": " + reasons};
}

}  // namespace tensorlightning
