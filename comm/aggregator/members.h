// Who takes part: ranks, attempts and leases.
//
// A worker is a member from its first Join until it leaves or its lease, the
// time of its silence, runs out; a lost connection alone does not end it. Each
// rank belongs to one attempt at a time: a later one takes it over, and the
// earlier one is refused from then on, however long it slept.
#ifndef TENSORLIGHTNING_COMM_AGGREGATOR_MEMBERS_H_
#define TENSORLIGHTNING_COMM_AGGREGATOR_MEMBERS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "comm/messages.h"
#include "comm/transport/deadline.h"
#include "kernels/result.h"

namespace tensorlightning {

class Session;

// What one worker has cost and brought; read without locks.
struct WorkerCounts {
  std::atomic<uint64_t> pushes{0};  // Applied; one per shard of an exchange.
  std::atomic<uint64_t> repeated{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> resyncs{0};
  std::atomic<uint64_t> entries_in{0};
  std::atomic<uint64_t> entries_out{0};
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> bytes_out{0};
};

struct Member {
  uint32_t rank = 0;
  uint64_t attempt = 0;
  std::string name;
  Deadline lease;
  // Of all attempts of the rank together.
  std::shared_ptr<WorkerCounts> counts = std::make_shared<WorkerCounts>();
};

class Members {
 public:
  // The limit on ranks bounds what all workers together can make us keep.
  explicit Members(uint32_t max_workers) : max_workers_(max_workers) {}

  struct Admission {
    std::shared_ptr<Member> member;
    std::shared_ptr<Session> previous;  // To be shut, if there is one.
    bool same_attempt = false;          // It was live, and is back.
  };
  // kRefused: fenced off by a newer attempt. kUnavailable: too many.
  // kInvalidArgument: a rank that is never given.
  Result<Admission> Admit(const Hello& hello,
                          const std::shared_ptr<Session>& session,
                          std::chrono::milliseconds lease);

  // Those who were here before a restart have the time of a lease to come back:
  // until then, their ranks are not given to who asks for any.
  void Reserve(std::set<uint32_t> ranks, std::chrono::milliseconds lease);

  // The session's connection has ended; the worker may come back.
  void Detach(const Member& member, const Session* session);
  // The worker has said that it ends. False if it was none any more.
  bool Leave(const Member& member);

  struct Expired {
    std::shared_ptr<Member> member;
    std::shared_ptr<Session> session;  // If it still has one.
  };
  std::vector<Expired> TakeExpired(Deadline::Clock::time_point now);

  bool IsLive(uint32_t rank) const;
  std::shared_ptr<Session> SessionOf(uint32_t rank) const;
  std::vector<std::shared_ptr<Session>> Sessions() const;
  std::vector<std::shared_ptr<Member>> All() const;  // Also those that left.
  uint32_t live() const { return live_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    std::shared_ptr<Member> member;
    std::weak_ptr<Session> session;
    bool live = false;
  };

  Result<uint32_t> ChooseRank(const Hello& hello) const;

  const uint32_t max_workers_;
  mutable std::mutex mutex_;  // Held for moments, when somebody comes or goes.
  std::map<uint32_t, Entry> entries_;
  std::set<uint32_t> reserved_;
  Deadline reserved_until_;
  std::atomic<uint32_t> live_{0};
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_AGGREGATOR_MEMBERS_H_
