#include "tf_ops/workers.h"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <utility>

#include "comm/worker/embedded_aggregators.h"

namespace tensorlightning {
namespace {

// For the other workers of an aggregator that lives in this process.
constexpr std::chrono::duration<int, std::milli> kForOthers{600'000};

struct Registry {
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<SharedWorker>> workers;
  std::map<int64_t, std::string> last_statistics;  // Of those that have left.
  int64_t next = 1;
  pid_t process = 0;  // That the workers' threads run in; 0: none yet.
};

// Never destroyed: ops of other threads may still ask for it at exit.
Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

std::mutex watch_mutex;
int watches = 0;
struct sigaction previous;
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void OnInterrupt(int signal, siginfo_t* info, void* context) {
  interrupted.store(true, std::memory_order_relaxed);
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  }
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 &&
         action.sa_sigaction == OnInterrupt;
}

}  // namespace

int64_t AddWorker(std::shared_ptr<SharedWorker> worker) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  if (registry.process == 0) {
    registry.process = ::getpid();
    (void)std::atexit([] { tl_shutdown(kForOthers.count()); });
  }
  registry.workers.emplace(registry.next, std::move(worker));
  return registry.next++;
}

std::shared_ptr<SharedWorker> FindWorker(int64_t number) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.workers.find(number);
  return found == registry.workers.end() ? nullptr : found->second;
}

void RemoveWorker(int64_t number) {
  std::shared_ptr<SharedWorker> removed;
  Registry& registry = TheRegistry();
  {
    const std::lock_guard lock(registry.mutex);
    const auto found = registry.workers.find(number);
    if (found == registry.workers.end()) return;
    removed = std::move(found->second);
    registry.workers.erase(found);
    registry.last_statistics[number] = removed->worker->StatisticsJson();
  }
  // Whoever waits in another op lets go of it, the last one destroys it.
  removed->worker->Interrupt();
}

std::string LastStatistics(int64_t number) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.last_statistics.find(number);
  return found == registry.last_statistics.end() ? "" : found->second;
}

InterruptWatch::InterruptWatch() {
  const std::lock_guard lock(watch_mutex);
  if (watches++ > 0) return;
  interrupted.store(false);
  ::sigaction(SIGINT, nullptr, &previous);
  // By default it ends the process, or is ignored: both need no help.
  const bool plain =
      (previous.sa_flags & SA_SIGINFO) == 0 &&
      (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN);
  if (plain || IsOurs(previous)) return;
  struct sigaction action {};
  action.sa_sigaction = OnInterrupt;
  action.sa_flags = previous.sa_flags | SA_SIGINFO;
  action.sa_mask = previous.sa_mask;
  ::sigaction(SIGINT, &action, nullptr);
}

InterruptWatch::~InterruptWatch() {
  const std::lock_guard lock(watch_mutex);
  if (--watches > 0) return;
  struct sigaction current {};
  ::sigaction(SIGINT, nullptr, &current);
  // Somebody else's, by now: theirs to keep.
  if (IsOurs(current)) ::sigaction(SIGINT, &previous, nullptr);
}

bool InterruptWatch::Interrupted() {
  return interrupted.load(std::memory_order_relaxed);
}

}  // namespace tensorlightning

void tl_shutdown(int for_others_ms) {
  using namespace tensorlightning;  // NOLINT
  std::map<int64_t, std::shared_ptr<SharedWorker>> workers;
  {
    Registry& registry = TheRegistry();
    // A forked child has the workers, and none of their threads: nothing of it
    // may be touched.
    if (registry.process != ::getpid()) return;
    const std::lock_guard lock(registry.mutex);
    workers.swap(registry.workers);
  }
  for (const auto& [number, shared] : workers) shared->worker->Interrupt();
  workers.clear();
  const InterruptWatch watch;
  StopEmbeddedAggregators(std::chrono::milliseconds(for_others_ms),
                          InterruptWatch::Interrupted);
}
