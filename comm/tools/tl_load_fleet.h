// All simulated workers of a tl-load, and what is done with them, in turn:
//
//   Join    all of them, the first one before the others
//   Run     steps and faults, until the time or the steps are over
//   Drain   gradient policies: until nothing is owed
//   Settle  waits for what is under way; compares views
//   ...     questions to the aggregator
//   Leave
//
// One thread, the caller's, goes round the workers and steps those whose time
// has come; nothing it does blocks. With a barrier (gradient) a worker that has
// done its steps goes on with zeros until all have: others wait for it. And at
// the end they leave as their exchanges end, the first one last.
#ifndef TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_FLEET_H_
#define TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_FLEET_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/tools/tl_load_helpers.h"
#include "comm/tools/tl_load_ledger.h"
#include "comm/tools/tl_load_settings.h"
#include "comm/tools/tl_load_tally.h"
#include "comm/tools/tl_load_worker.h"

namespace tensorlightning {

class LoadFleet {
 public:
  // Called again and again while anything goes on. False: come to an end.
  using Tick = std::function<bool()>;

  // Both outlive it. `ledger` may be null.
  LoadFleet(const Load& load, Ledger* ledger);

  // An error when one could not, or when told to end.
  Status Join(const Tick& tick);
  void Run(const Tick& tick);
  // Whether nothing is owed, and nothing was lost with a worker that failed.
  bool Drain(const Tick& tick);
  // With `check`: whether all views agree, none of a failed worker among them.
  bool Settle(bool check, const Tick& tick);
  // Whether some view was compared, and differs.
  bool disagree() const { return disagree_.load(); }
  // Both of the first worker that has not failed. Not after Leave().
  Result<std::string> AggregatorStatus(const Tick& tick);
  Status WriteCentre(const std::string& path, const Tick& tick);
  void Leave(const Tick& tick);

  size_t size() const { return workers_.size(); }
  size_t shards() const { return common_.shards; }
  size_t joined() const { return joined_; }
  uint64_t cuts() const { return cuts_; }
  uint64_t crashes() const { return crashes_; }
  // Live workers of the job, as one of these knows; 0: none does.
  uint32_t live() const;
  // Of the run alone.
  std::chrono::duration<double> run_time() const { return run_time_; }
  void AddTo(Tally& tally) const;
  uint64_t joining_bytes() const;
  // A sentence for each worker that failed, up to kMostFailures; then how many
  // more there are.
  std::vector<std::string> failures() const;
  static constexpr size_t kMostFailures = 8;

 private:
  using Clock = std::chrono::steady_clock;

  // Has a helper do it; the worker is away until then.
  void Send(LoadWorker& worker, std::function<Status()> work);
  void Fail(LoadWorker& worker, const Error& error);
  void Fail(const std::string& sentence);
  void WaitForHelpers(const Tick& tick);
  bool AnyAway() const;
  bool AnyFailed() const;
  void MaybeFault(LoadWorker& worker);
  // Of a round over all workers: whether all have done their steps, and when to
  // come again.
  bool RunRound(Clock::time_point now, Clock::time_point& next);
  Status SettleOne(LoadWorker& worker, bool check);
  void SettleAtBarrier(bool check, const Tick& tick);
  LoadWorker* Keeper();

  const Load& load_;
  const WalkTable table_;
  LoadCommon common_;
  std::vector<std::unique_ptr<LoadWorker>> workers_;
  std::atomic<size_t> joined_{0};
  std::atomic<bool> disagree_{false};
  uint64_t cuts_ = 0;
  uint64_t crashes_ = 0;
  std::chrono::duration<double> run_time_{0};

  mutable std::mutex mutex_;
  std::vector<std::string> failures_;
  size_t more_failures_ = 0;

  LoadHelpers helpers_;  // Last: its threads use all of the above.
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_FLEET_H_
