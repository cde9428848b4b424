#include "comm/transport/listen.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "comm/transport/connect.h"
#include "comm/transport/stream.h"

namespace tensorlightning {
namespace {

using Address = asio::generic::stream_protocol::endpoint;

constexpr int kBacklog = 4096;
// After an error that may pass, such as too many open files.
constexpr std::chrono::milliseconds kRest{100};

Result<Address> Resolve(asio::io_context& context, const Endpoint& endpoint) {
  if (endpoint.is_unix()) {
    return UnixAddress(endpoint.unix_path);
  }
  SysError error;
  asio::ip::tcp::resolver resolver(context);
  const auto found =
      resolver.resolve(endpoint.host, std::to_string(endpoint.port),
                       asio::ip::tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "no address for " + endpoint.host + ": " + error.message()};
  }
  return Address(found.begin()->endpoint());
}

// A socket file that nobody listens on any more is in the way.
void RemoveStaleSocket(asio::io_context& context, const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  SysError error;
  asio::local::stream_protocol::socket probe(context);
  probe.connect(asio::local::stream_protocol::endpoint(path), error);
  if (error == asio::error::connection_refused) ::unlink(path.c_str());
}

}  // namespace

Listener::Listener(ThreadPool& pool, Endpoint endpoint, std::string congestion,
                   Accepted accepted)
    : pool_(pool),
      strand_(pool.MakeStrand()),
      endpoint_(std::move(endpoint)),
      congestion_(std::move(congestion)),
      accepted_(std::move(accepted)),
      acceptor_(strand_) {}

Listener::~Listener() {
  if (endpoint_.is_unix()) ::unlink(endpoint_.unix_path.c_str());
}

Result<std::shared_ptr<Listener>> Listener::Open(ThreadPool& pool,
                                                 const Endpoint& endpoint,
                                                 const std::string& congestion,
                                                 Accepted accepted) {
  const Result<Address> address = Resolve(pool.context(), endpoint);
  if (!address.ok()) return address.error();
  if (endpoint.is_unix()) {
    RemoveStaleSocket(pool.context(), endpoint.unix_path);
  }
  // Not yet a Listener: one that failed must not remove another's socket file.
  Acceptor acceptor(pool.context());
  SysError error;
  acceptor.open(address->protocol(), error);
  if (!error && !endpoint.is_unix()) {
    acceptor.set_option(asio::socket_base::reuse_address(true), error);
  }
  if (!error) acceptor.bind(*address, error);
  if (!error) acceptor.listen(kBacklog, error);
  if (error) {
    return Error{ErrorCode::kIo, "can't listen on " + endpoint.ToString() +
                                     ": " + error.message()};
  }
  const std::shared_ptr<Listener> listener(
      new Listener(pool, endpoint, congestion, std::move(accepted)));
  listener->acceptor_.assign(address->protocol(), acceptor.release(), error);
  if (!endpoint.is_unix()) {
    const Address local = listener->acceptor_.local_endpoint(error);
    asio::ip::tcp::endpoint tcp;
    std::memcpy(tcp.data(), local.data(), local.size());
    listener->endpoint_.port = tcp.port();
  }
  asio::co_spawn(listener->strand_, Run(listener), asio::detached);
  return listener;
}

Awaitable<void> Listener::Run(std::shared_ptr<Listener> self) {
  asio::steady_timer rest(self->strand_);
  while (self->acceptor_.is_open()) {
    SysError error;
    bool failed = false;
    try {
      const Strand strand = self->pool_.MakeStrand();
      Socket socket(strand);
      co_await self->acceptor_.async_accept(socket, Into(error));
      if (error == asio::error::operation_aborted) co_return;
      failed = static_cast<bool>(error);
      if (!failed) {
        SetSocketOptions(socket, self->congestion_);
        self->accepted_(strand, std::move(socket));
      }
    } catch (const std::exception&) {
      failed = true;  // Too little memory for one more, now.
    }
    if (failed) {
      rest.expires_after(kRest);
      co_await rest.async_wait(Into(error));
    }
  }
}

void Listener::Close() {
  asio::post(strand_, [self = shared_from_this()] {
    SysError ignored;
    self->acceptor_.close(ignored);
  });
}

}  // namespace tensorlightning
