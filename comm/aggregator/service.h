// What an Aggregator consists of, and what its sessions share.
#ifndef TENSORLIGHTNING_COMM_AGGREGATOR_SERVICE_H_
#define TENSORLIGHTNING_COMM_AGGREGATOR_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/aggregator/aggregator.h"
#include "comm/aggregator/centre.h"
#include "comm/aggregator/folder_lock.h"
#include "comm/aggregator/members.h"
#include "comm/aggregator/snapshot_keeper.h"
#include "comm/histogram.h"
#include "comm/transport/listen.h"
#include "comm/transport/thread_pool.h"

namespace tensorlightning {

class Service {
 public:
  // Without a pool it has one of its own.
  explicit Service(AggregatorOptions options,
                   std::shared_ptr<ThreadPool> pool = nullptr);
  ~Service();

  Status Start();
  Status Stop();

  const AggregatorOptions& options() const { return options_; }
  ThreadPool& pool() { return *pool_; }
  Members& members() { return members_; }
  uint64_t incarnation() const { return incarnation_; }

  // The service of a job: this one or, for "<job>/...", a companion, made when
  // it is first asked for. (CentreFor() refuses other jobs.)
  Result<Service*> ServiceOf(const std::string& job);

  // The centre of the model that the worker brings; it becomes ours if we have
  // none. kRefused names what differs, `code` says it to the worker.
  Result<std::shared_ptr<Centre>> CentreFor(const Hello& hello,
                                            const Join& join, WireError& code);

  // A session of a stranger begins; is known; has joined; its connection has
  // ended.
  void Began(const std::shared_ptr<Session>& session);
  void IsNoStranger(const std::shared_ptr<Session>& session);
  void Joined(const std::shared_ptr<Session>& session, const Member& member);
  void Ended(const std::shared_ptr<Session>& session, const Error& why);

  // Frees a former worker's views. Its session must be shut.
  void DropViews(uint32_t rank);
  // Sends replies that have become ready in a shard, to whom they belong. On
  // the shard's strand.
  void DeliverReady(Centre::Served& served, uint32_t shard);

  AggregatorTotals Totals() const;
  std::string StatusJson() const;
  Result<std::string> TakeSnapshot();
  std::vector<Endpoint> Endpoints() const;

  Histogram& apply_time() { return apply_time_; }

 private:
  Status Restore();
  Awaitable<void> WatchLeases();
  Awaitable<void> DropExpired();
  void WaitForNobody(std::chrono::milliseconds patience) const;
  std::shared_ptr<Centre> centre() const;
  AggregatorOptions OptionsOfCompanion(const std::string& job) const;
  // Becomes the service of another job, if nobody uses it.
  bool TakeOver(const std::string& job);
  Status CheckListen(const Endpoint& endpoint) const;

  const AggregatorOptions options_;
  const uint64_t incarnation_;
  FolderLock folder_lock_;
  const bool owns_pool_;
  // Outlives everything that has a strand of it.
  const std::shared_ptr<ThreadPool> pool_;
  Members members_;
  Histogram apply_time_;
  Strand lease_strand_;
  asio::steady_timer lease_timer_;
  bool watching_ = true;  // The strand's.
  std::vector<std::shared_ptr<Listener>> listeners_;

  mutable std::mutex mutex_;  // Held for moments, when somebody comes or goes.
  std::string job_;
  std::shared_ptr<Centre> centre_;
  std::deque<std::weak_ptr<Session>> strangers_;
  bool stopping_ = false;

  std::atomic<uint64_t> connections_{0};
  std::atomic<uint64_t> turned_away_{0};
  std::atomic<uint64_t> expired_{0};
  std::unique_ptr<SnapshotKeeper> keeper_;
  // By job. They share our pool, which must have stopped before they go.
  std::map<std::string, std::unique_ptr<Service>> companions_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_AGGREGATOR_SERVICE_H_
