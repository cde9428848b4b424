#include "comm/tools/tl_load_fleet.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "comm/shards.h"
#include "comm/transport/thread_pool.h"

namespace tensorlightning {
namespace {

constexpr size_t kHelpers = 16;
constexpr std::chrono::milliseconds kPoll{2};
// How long the driver sleeps at most, and while it waits for exchanges.
constexpr std::chrono::microseconds kLongestNap{2'000};
constexpr std::chrono::microseconds kShortNap{200};

uint64_t FirstAttempt(const LoadSettings& settings) {
  if (settings.attempt != 0) return static_cast<uint64_t>(settings.attempt);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

size_t HelpersFor(const LoadSettings& settings) {
  return std::min(kHelpers, static_cast<size_t>(settings.workers));
}

}  // namespace

LoadFleet::LoadFleet(const Load& load, Ledger* ledger)
    : load_(load),
      table_(static_cast<uint64_t>(load.settings.seed), load.settings.exact),
      common_{
          load,
          table_,
          std::make_shared<ThreadPool>(static_cast<int>(load.settings.threads)),
          ledger,
          ShardMap(load.layout).shards().size(),
          FirstAttempt(load.settings)},
      helpers_(HelpersFor(load.settings)) {
  for (uint32_t i = 0; i < load.settings.workers; ++i) {
    workers_.push_back(std::make_unique<LoadWorker>(common_, i));
  }
}

// ---- Helpers. ---------------------------------------------------------------

void LoadFleet::Send(LoadWorker& worker, std::function<Status()> work) {
  worker.away = true;
  helpers_.Post([this, &worker, work = std::move(work)] {
    const Status status = work();
    if (!status.ok()) Fail(worker, status.error());
    worker.away = false;
  });
}

void LoadFleet::Fail(LoadWorker& worker, const Error& error) {
  worker.failed = true;
  Fail(worker.Name() + ": " + error.message);
}

void LoadFleet::Fail(const std::string& sentence) {
  const std::lock_guard lock(mutex_);
  if (failures_.size() < kMostFailures) {
    failures_.push_back(sentence);
  } else {
    ++more_failures_;
  }
}

bool LoadFleet::AnyAway() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return worker->away.load(); });
}

bool LoadFleet::AnyFailed() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return worker->failed.load(); });
}

void LoadFleet::WaitForHelpers(const Tick& tick) {
  while (AnyAway()) {
    (void)tick();
    std::this_thread::sleep_for(kPoll);
  }
}

LoadWorker* LoadFleet::Keeper() {
  for (const std::unique_ptr<LoadWorker>& worker : workers_) {
    if (!worker->failed) return worker.get();
  }
  return nullptr;
}

// ---- Joining, and leaving. --------------------------------------------------

Status LoadFleet::Join(const Tick& tick) {
  for (const std::unique_ptr<LoadWorker>& worker : workers_) {
    Send(*worker, [this, w = worker.get()] {
      Status status = w->Join();
      if (status.ok()) ++joined_;
      return status;
    });
    // The first one is rank 0 if none is there yet, and brings the weights.
    const bool first = worker == workers_.front();
    while (first && worker->away) {
      if (!tick()) return Error{ErrorCode::kIo, "stopped while joining"};
      std::this_thread::sleep_for(kPoll);
    }
    if (worker->failed) break;
  }
  while (AnyAway() && failures().empty()) {
    if (!tick()) return Error{ErrorCode::kIo, "stopped while joining"};
    std::this_thread::sleep_for(kPoll);
  }
  const std::vector<std::string> failed = failures();
  if (failed.empty()) return Done{};
  return Error{ErrorCode::kIo, failed.front()};
}

void LoadFleet::Leave(const Tick& tick) {
  for (const std::unique_ptr<LoadWorker>& worker : workers_) {
    Send(*worker, [w = worker.get()]() -> Status {
      w->Leave();
      return Done{};
    });
  }
  WaitForHelpers(tick);
}

// ---- Running. ---------------------------------------------------------------

void LoadFleet::MaybeFault(LoadWorker& worker) {
  if (load_.settings.fault_rate == 0 ||
      worker.random().Share() >= load_.settings.fault_rate) {
    return;
  }
  if (worker.random().Next() % 2 == 0) {
    ++cuts_;
    Send(worker, [&worker]() -> Status {
      worker.CutConnections();
      return Done{};
    });
    return;
  }
  ++crashes_;
  Send(worker, [&worker] {
    worker.Crash();
    return worker.Join();
  });
}

bool LoadFleet::RunRound(Clock::time_point now, Clock::time_point& next) {
  const auto limit = static_cast<uint64_t>(load_.settings.steps);
  bool all_done = true;
  for (const std::unique_ptr<LoadWorker>& worker : workers_) {
    if (worker->away) {
      all_done = false;
      next = std::min(next, now + kShortNap);
      continue;
    }
    if (worker->failed) continue;
    const bool done = limit != 0 && worker->steps() >= limit;
    all_done = all_done && done;
    if (done && !load_.has_barrier()) continue;
    if (worker->due > now) {
      next = std::min(next, worker->due);
      continue;
    }
    if (!worker->Ready()) {
      next = std::min(next, now + kShortNap);
      continue;
    }
    const Status status = done ? worker->ExchangeRest() : worker->Step();
    if (!status.ok()) {
      Fail(*worker, status.error());
      continue;
    }
    worker->due = std::max(now, worker->due + load_.settings.step);
    next = std::min(next, worker->due);
    if (!done) MaybeFault(*worker);
  }
  return all_done;
}

void LoadFleet::Run(const Tick& tick) {
  const Clock::time_point start = Clock::now();
  const bool timed = load_.settings.duration.count() > 0;
  for (const std::unique_ptr<LoadWorker>& worker : workers_) {
    // Not all at once.
    worker->due = start + std::chrono::duration_cast<Clock::duration>(
                              load_.settings.step * worker->random().Share());
  }
  while (tick()) {
    const Clock::time_point now = Clock::now();
    if (timed && now - start >= load_.settings.duration) break;
    Clock::time_point next = now + kLongestNap;
    if (RunRound(now, next)) break;
    run_time_ = Clock::now() - start;
    if (next > now) std::this_thread::sleep_until(next);
  }
  run_time_ = Clock::now() - start;
  WaitForHelpers(tick);
}

// ---- Accounts. --------------------------------------------------------------

void LoadFleet::AddTo(Tally& tally) const {
  for (const std::unique_ptr<LoadWorker>& worker : workers_) {
    worker->AddTo(tally);
  }
}

uint64_t LoadFleet::joining_bytes() const {
  uint64_t bytes = 0;
  for (const auto& worker : workers_) bytes += worker->joining_bytes();
  return bytes;
}

uint32_t LoadFleet::live() const {
  for (const std::unique_ptr<LoadWorker>& worker : workers_) {
    const uint32_t live = worker->failed ? 0 : worker->live();
    if (live != 0) return live;
  }
  return 0;
}

std::vector<std::string> LoadFleet::failures() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all = failures_;
  if (more_failures_ > 0) {
    all.push_back("and " + std::to_string(more_failures_) + " more");
  }
  return all;
}

}  // namespace tensorlightning
