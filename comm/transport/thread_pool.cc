#include "comm/transport/thread_pool.h"

#include <memory>

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

Workspace& ThreadWorkspace() {
  thread_local const auto workspace = std::make_unique<Workspace>();
  return *workspace;
}

std::span<std::byte> ThreadScratch(size_t bytes) {
  thread_local std::vector<std::byte> scratch;
  if (scratch.size() < bytes) scratch.resize(bytes);
  return std::span(scratch).first(bytes);
}

}  // namespace tensorlightning
