// A few threads for what blocks.
#ifndef TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_HELPERS_H_
#define TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_HELPERS_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tensorlightning {

class LoadHelpers {
 public:
  explicit LoadHelpers(size_t threads) {
    for (size_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Run(); });
    }
  }
  // Waits for what has begun; drops what has not.
  ~LoadHelpers() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  LoadHelpers(const LoadHelpers&) = delete;
  LoadHelpers& operator=(const LoadHelpers&) = delete;

  void Post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

 private:
  void Run() {
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
        if (ending_) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::deque<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_HELPERS_H_
