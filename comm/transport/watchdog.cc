#include "comm/transport/watchdog.h"

#include <algorithm>

namespace tensorlightning {
namespace {

constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

Watchdog::Watchdog(asio::io_context& context) : timer_(context) { Schedule(); }

void Watchdog::Watch(std::weak_ptr<Watched> watched) {
  const std::lock_guard lock(mutex_);
  watched_.push_back(std::move(watched));
}

void Watchdog::Schedule() {
  timer_.expires_after(kInterval);
  timer_.async_wait([this](SysError error) {
    if (error) return;
    Look();
    Schedule();
  });
}

void Watchdog::Look() {
  const Deadline::Clock::time_point now = Deadline::Clock::now();
  // Held until the lock is released: the last reference to a watched object
  // may be ours, and its end may take time.
  std::vector<std::shared_ptr<Watched>> alive;
  {
    const std::lock_guard lock(mutex_);
    alive.reserve(watched_.size());
    std::erase_if(watched_, [&](const std::weak_ptr<Watched>& watched) {
      std::shared_ptr<Watched> locked = watched.lock();
      if (locked == nullptr) return true;
      alive.push_back(std::move(locked));
      return false;
    });
  }
  for (const std::shared_ptr<Watched>& watched : alive) {
    watched->CheckDeadlines(now);
  }
}

}  // namespace tensorlightning
