#include "comm/transport/thread_pool.h"

namespace tensorlightning {

ThreadPool::ThreadPool(int threads)
    : context_(threads), work_(context_.get_executor()), watchdog_(context_) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { context_.run(); });
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  work_.reset();
  context_.stop();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace tensorlightning
