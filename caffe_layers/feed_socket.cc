#include "caffe_layers/feed_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "caffe_layers/interrupts.h"

namespace tensorlightning {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kBetweenTries{100};
// The longest that anybody waits for a connection without a look at Ctrl-C.
constexpr milliseconds kTry{500};
constexpr size_t kBufferBytes = 256 * 1024;

std::string Seconds(milliseconds time) {
  return std::to_string(std::chrono::duration<double>(time).count())
      .substr(0, 5);
}

std::string Meaning(int error) {
  return std::generic_category().message(error);
}

// 0 once it is done.
int Poll(int socket, int16_t events, milliseconds patience) {
  const Clock::time_point until = Clock::now() + patience;
  while (true) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(until - Clock::now());
    pollfd waiting{socket, events, 0};
    const int ready =
        poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready > 0) return 0;
    if (ready == 0) return ETIMEDOUT;
    if (errno != EINTR) return errno;
  }
}

// A connected socket, or minus the error.
int Try(const sockaddr* address, socklen_t length, milliseconds patience) {
  const int made =
      socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return -errno;
  int error = connect(made, address, length) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    error = Poll(made, POLLOUT, patience);
    socklen_t size = sizeof(error);
    if (error == 0) getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) return made;
  close(made);
  return -error;
}

Result<int> TryUnix(const std::string& path, milliseconds patience) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int made = Try(reinterpret_cast<const sockaddr*>(&address),
                       sizeof(address), patience);
  if (made < 0) return Error{ErrorCode::kIo, Meaning(-made)};
  return made;
}

Result<int> TryTcp(const Endpoint& endpoint, milliseconds patience) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status =
      getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(),
                  &hints, &found);
  if (status != 0) return Error{ErrorCode::kIo, gai_strerror(status)};
  int made = -EHOSTUNREACH;
  for (const addrinfo* a = found; a != nullptr && made < 0; a = a->ai_next) {
    made = Try(a->ai_addr, a->ai_addrlen, patience);
  }
  freeaddrinfo(found);
  if (made < 0) return Error{ErrorCode::kIo, Meaning(-made)};
  return made;
}

}  // namespace

Result<std::unique_ptr<FeedSocket>> FeedSocket::Connect(
    const Endpoint& endpoint, milliseconds patience) {
  const Clock::time_point until = Clock::now() + patience;
  const InterruptWatch watch;
  while (true) {
    const milliseconds left = std::max(
        kBetweenTries,
        std::chrono::duration_cast<milliseconds>(until - Clock::now()));
    const milliseconds most = std::min(left, kTry);
    const Result<int> made = endpoint.is_unix()
                                 ? TryUnix(endpoint.unix_path, most)
                                 : TryTcp(endpoint, most);
    if (made.ok()) {
      return std::unique_ptr<FeedSocket>(new FeedSocket(*made, patience));
    }
    if (watch.pressed()) {
      return Error{ErrorCode::kTimedOut,
                   "interrupted while no feeder listened there"};
    }
    if (Clock::now() + kBetweenTries >= until) {
      return Error{ErrorCode::kTimedOut,
                   "no feeder has listened there within " + Seconds(patience) +
                       " s: " + made.error().message +
                       " (TL_PATIENCE is how long it is waited for)"};
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

FeedSocket::FeedSocket(int socket, milliseconds patience)
    : socket_(socket), patience_(patience), buffer_(kBufferBytes) {}

FeedSocket::~FeedSocket() { close(socket_); }

void FeedSocket::Shut() {
  shut_.store(true);
  shutdown(socket_, SHUT_RDWR);
}

Status FeedSocket::Read(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    if (unread_.empty() && bytes.size() < buffer_.size()) {
      const Result<size_t> some = ReadSome(buffer_);
      if (!some.ok()) return some.error();
      unread_ = std::span(buffer_).first(*some);
    }
    size_t taken = std::min(unread_.size(), bytes.size());
    if (taken > 0) {
      std::memcpy(bytes.data(), unread_.data(), taken);
      unread_ = unread_.subspan(taken);
    } else {
      const Result<size_t> some = ReadSome(bytes);
      if (!some.ok()) return some.error();
      taken = *some;
    }
    bytes = bytes.subspan(taken);
  }
  return Done{};
}

Result<size_t> FeedSocket::ReadSome(std::span<std::byte> bytes) {
  while (!shut_.load()) {
    const ssize_t length = recv(socket_, bytes.data(), bytes.size(), 0);
    if (length > 0) return static_cast<size_t>(length);
    if (length == 0) {
      return Error{ErrorCode::kIo, "the feeder has closed the connection"};
    }
    int error = errno;
    if (error == EAGAIN || error == EINTR) {
      error = Poll(socket_, POLLIN, patience_);
    }
    if (error == ETIMEDOUT) {
      return Error{ErrorCode::kTimedOut,
                   "the feeder has sent nothing for " + Seconds(patience_) +
                       " s (TL_PATIENCE is how long it is waited for)"};
    }
    if (error != 0) return Error{ErrorCode::kIo, Meaning(error)};
  }
  return Error{ErrorCode::kIo, "this side has closed the connection"};
}

}  // namespace tensorlightning
