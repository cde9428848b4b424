// Deadlines on every operation, at the price of one store each.
//
// A timer per read and write would cost more than the read. Instead, whoever
// waits writes down until when, and the watchdog looks at everybody ten times a
// second: a deadline is kept to a tenth of a second.
#ifndef TENSORLIGHTNING_COMM_TRANSPORT_WATCHDOG_H_
#define TENSORLIGHTNING_COMM_TRANSPORT_WATCHDOG_H_

#include <memory>
#include <mutex>
#include <vector>

#include "comm/transport/asio.h"
#include "comm/transport/deadline.h"

namespace tensorlightning {

class Watched {
 public:
  virtual ~Watched() = default;
  // From any thread, again and again while a deadline is past.
  virtual void CheckDeadlines(Deadline::Clock::time_point now) = 0;
};

class Watchdog {
 public:
  explicit Watchdog(asio::io_context& context);

  // Until the object dies.
  void Watch(std::weak_ptr<Watched> watched);

 private:
  void Schedule();
  void Look();

  asio::steady_timer timer_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Watched>> watched_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TRANSPORT_WATCHDOG_H_
