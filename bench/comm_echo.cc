#include "bench/comm_echo.h"

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <utility>

#include "bench/comm_run.h"
#include "bench/measure.h"
#include "comm/transport/connect.h"

namespace tensorlightning::bench {
namespace {

constexpr std::chrono::seconds kPatience{20};

Awaitable<Result<double>> RoundTrip(Socket& socket, asio::const_buffer there,
                                    asio::mutable_buffer back) {
  SysError error;
  const double begin = Seconds(CLOCK_MONOTONIC);
  co_await asio::async_write(socket, there, Into(error));
  if (!error) co_await asio::async_read(socket, back, Into(error));
  if (error) co_return Error{ErrorCode::kIo, "echo: " + error.message()};
  co_return Seconds(CLOCK_MONOTONIC) - begin;
}

std::unique_ptr<ThreadPool> PoolOn(int core) {
  StayOnCore(core);
  return std::make_unique<ThreadPool>(1);
}

}  // namespace

Echo::Echo(Sizes sizes)
    : sizes_(sizes),
      there_(sizes.there),
      back_(sizes.back),
      server_(PoolOn(kServerCore)),
      client_(PoolOn(kClientCore)),
      strand_(client_->MakeStrand()) {}

Echo::~Echo() {
  client_->Stop();
  server_->Stop();
}

Result<std::unique_ptr<Echo>> Echo::Start(Sizes sizes) {
  std::unique_ptr<Echo> echo(new Echo(sizes));
  const Status opened = echo->Open();
  if (!opened.ok()) return opened.error();
  return echo;
}

Awaitable<void> Echo::Serve(Socket socket, Sizes sizes) {
  std::vector<std::byte> there(sizes.there);
  const std::vector<std::byte> back(sizes.back);
  SysError error;
  while (true) {
    co_await asio::async_read(socket, asio::buffer(there), Into(error));
    if (error) co_return;
    co_await asio::async_write(socket, asio::buffer(back), Into(error));
    if (error) co_return;
  }
}

Status Echo::Open() {
  const auto serve = [sizes = sizes_](const Strand& strand, Socket socket) {
    asio::co_spawn(strand, Serve(std::move(socket), sizes), asio::detached);
  };
  Result<std::shared_ptr<Listener>> listener =
      Listener::Open(*server_, {"127.0.0.1", 0, ""}, "", serve);
  if (!listener.ok()) return listener.error();
  listener_ = std::move(*listener);
  asio::steady_timer timer(strand_);
  Result<Socket> socket = RunToEnd(
      strand_, Connect(strand_, listener_->endpoint(), kPatience, "", timer));
  if (!socket.ok()) return socket.error();
  socket_.emplace(std::move(*socket));
  return Done{};
}

Result<double> Echo::Once() {
  return RunToEnd(
      strand_, RoundTrip(*socket_, asio::buffer(there_), asio::buffer(back_)));
}

}  // namespace tensorlightning::bench
