// The workers of this process, by the numbers under which ops know them.
//
// Python may end with exchanges under way, TensorFlow does not promise to
// destroy what its graphs own, and so the end is ours: tl_shutdown(), which is
// also called at exit, makes all workers leave.
#ifndef TENSORLIGHTNING_TF_OPS_WORKERS_H_
#define TENSORLIGHTNING_TF_OPS_WORKERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "comm/worker/worker.h"

namespace tensorlightning {

struct SharedWorker {
  // Held by whoever calls the worker, but for what may be called at any time.
  // Locked before any variable is.
  std::timed_mutex mutex;
  std::unique_ptr<Worker> worker;  // Not null once it is added.
  // The op that holds the mutex was cancelled.
  std::atomic<bool> cancelled{false};
  // Of TlStep while another op held the mutex.
  std::atomic<uint64_t> steps_missed{0};
};

int64_t AddWorker(std::shared_ptr<SharedWorker> worker);
// Null when there is none of this number (any more).
std::shared_ptr<SharedWorker> FindWorker(int64_t number);
void RemoveWorker(int64_t number);
// The statistics of one that was removed; empty if there was none.
std::string LastStatistics(int64_t number);

// Notices Ctrl-C while it lives. Python's own handler only takes a note, which
// nobody reads before the op that waits has returned; so waits look here. What
// was installed before is called, too, and put back at the end.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // Whether there was a Ctrl-C since the oldest of the living watches began.
  static bool Interrupted();
};

}  // namespace tensorlightning

extern "C" {
// All workers leave. An aggregator that is embedded here stays for the workers
// of other processes as long as they are there, but no longer than this. Safe
// to be called twice, and at exit; without effect in a forked child.
void tl_shutdown(int for_others_ms);
}

#endif  // TENSORLIGHTNING_TF_OPS_WORKERS_H_
