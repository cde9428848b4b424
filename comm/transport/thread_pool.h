// The fixed pool of threads that does comm's work: a worker's beside its
// training, an aggregator's instead of it.
#ifndef TENSORLIGHTNING_COMM_TRANSPORT_THREAD_POOL_H_
#define TENSORLIGHTNING_COMM_TRANSPORT_THREAD_POOL_H_

#include <thread>
#include <vector>

#include "comm/transport/asio.h"
#include "comm/transport/watchdog.h"

namespace tensorlightning {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  // Stops it. Not from one of its own threads.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  asio::io_context& context() { return context_; }
  Watchdog& watchdog() { return watchdog_; }
  Strand MakeStrand() { return asio::make_strand(context_); }

  // Ends the threads; what is still queued is dropped.
  void Stop();

 private:
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  Watchdog watchdog_;
  std::vector<std::thread> threads_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TRANSPORT_THREAD_POOL_H_
