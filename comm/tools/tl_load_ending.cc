// LoadFleet at the end of a run.

#include <algorithm>
#include <fstream>
#include <future>
#include <thread>

#include "comm/tools/tl_load_fleet.h"

namespace tensorlightning {
namespace {

constexpr std::chrono::microseconds kNap{200};

}  // namespace

bool LoadFleet::Drain(const Tick& tick) {
  Clock::time_point progress = Clock::now();
  while (true) {
    (void)tick();
    bool all = true;
    for (const std::unique_ptr<LoadWorker>& worker : workers_) {
      if (worker->failed) continue;
      const bool drained = worker->Drained();
      all = all && drained;
      if (!worker->Ready() || (drained && !load_.has_barrier())) continue;
      const Status status = worker->ExchangeRest();
      if (!status.ok()) Fail(*worker, status.error());
      progress = Clock::now();
    }
    if (all) return !AnyFailed();
    if (Clock::now() - progress > load_.settings.patience) {
      Fail("nothing came back for " +
           std::to_string(load_.settings.patience.count()) +
           " ms while something was still owed");
      return false;
    }
    std::this_thread::sleep_for(kNap);
  }
}

Status LoadFleet::SettleOne(LoadWorker& worker, bool check) {
  Status status = worker.WaitUntilIdle();
  if (!status.ok() || !check) return status;
  const Result<bool> agree = worker.ViewsAgree();
  if (!agree.ok()) return agree.error();
  if (*agree) return status;
  disagree_ = true;
  Fail(worker.Name() + " and the aggregator disagree on its view");
  return status;
}

// Who has no exchange under way leaves; so the exchanges of others, which
// waited for it, end too. The keeper plays on until it is alone.
void LoadFleet::SettleAtBarrier(bool check, const Tick& tick) {
  LoadWorker* const keeper = Keeper();
  std::vector<LoadWorker*> others;
  for (const std::unique_ptr<LoadWorker>& worker : workers_) {
    if (worker.get() != keeper && !worker->failed) {
      others.push_back(worker.get());
    }
  }
  Clock::time_point progress = Clock::now();
  while (!others.empty()) {
    (void)tick();
    const size_t gone = std::erase_if(others, [&](LoadWorker* worker) {
      if (!worker->Ready()) return false;
      Send(*worker, [this, worker, check] {
        Status status = SettleOne(*worker, check);
        worker->Leave();
        return status;
      });
      return true;
    });
    if (gone > 0) progress = Clock::now();
    if (keeper != nullptr && !keeper->failed && keeper->Ready()) {
      const Status status = keeper->ExchangeRest();
      if (!status.ok()) Fail(*keeper, status.error());
    }
    if (Clock::now() - progress > load_.settings.patience) {
      for (LoadWorker* worker : others) {
        Fail(*worker,
             {ErrorCode::kTimedOut, "its last exchange did not end in time"});
      }
      return;
    }
    std::this_thread::sleep_for(kNap);
  }
  WaitForHelpers(tick);
}

bool LoadFleet::Settle(bool check, const Tick& tick) {
  if (load_.has_barrier()) SettleAtBarrier(check, tick);
  for (const std::unique_ptr<LoadWorker>& worker : workers_) {
    if (worker->failed || (load_.has_barrier() && worker.get() != Keeper())) {
      continue;
    }
    Send(*worker,
         [this, w = worker.get(), check] { return SettleOne(*w, check); });
  }
  WaitForHelpers(tick);
  return !disagree_ && !AnyFailed();
}

Result<std::string> LoadFleet::AggregatorStatus(const Tick& tick) {
  LoadWorker* const keeper = Keeper();
  if (keeper == nullptr) return Error{ErrorCode::kIo, "no worker is left"};
  std::promise<Result<std::string>> answer;
  std::future<Result<std::string>> future = answer.get_future();
  Send(*keeper, [keeper, &answer]() -> Status {
    answer.set_value(keeper->AggregatorStatus());
    return Done{};
  });
  WaitForHelpers(tick);
  return future.get();
}

Status LoadFleet::WriteCentre(const std::string& path, const Tick& tick) {
  LoadWorker* const keeper = Keeper();
  if (keeper == nullptr) return Error{ErrorCode::kIo, "no worker is left"};
  std::promise<Status> written;
  std::future<Status> future = written.get_future();
  const auto write = [keeper, &path]() -> Status {
    const Result<std::span<const float>> centre = keeper->Centre();
    if (!centre.ok()) return centre.error();
    const std::span<const std::byte> bytes = std::as_bytes(*centre);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (file.good()) return Done{};
    return Error{ErrorCode::kIo, "the centre can't be written to " + path};
  };
  Send(*keeper, [&]() -> Status {
    written.set_value(write());
    return Done{};
  });
  WaitForHelpers(tick);
  return future.get();
}

}  // namespace tensorlightning
