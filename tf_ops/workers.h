// The workers of this process, by the numbers under which ops know them.
//
// Python may end with exchanges under way, TensorFlow does not promise to
// destroy what its graphs own, and so the end is ours: tl_shutdown(), which is
// also called at exit, makes all workers leave.
#ifndef TENSORLIGHTNING_TF_OPS_WORKERS_H_
#define TENSORLIGHTNING_TF_OPS_WORKERS_H_

#include <cstdint>
#include <memory>
#include <mutex>

#include "comm/worker/worker.h"

namespace tensorlightning {

// Locked by whoever calls the worker, but for what may be called at any time.
struct SharedWorker {
  std::mutex mutex;
  std::unique_ptr<Worker> worker;  // Never null.
};

int64_t AddWorker(std::unique_ptr<Worker> worker);
// Null when there is none of this number (any more).
std::shared_ptr<SharedWorker> FindWorker(int64_t number);
void RemoveWorker(int64_t number);

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
// Safe to be called twice, and at exit.
void tl_shutdown();
}

#endif  // TENSORLIGHTNING_TF_OPS_WORKERS_H_
