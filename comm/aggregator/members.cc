#include "comm/aggregator/members.h"

#include <utility>

namespace tensorlightning {
namespace {

Error Refuse(std::string message) {
  return {ErrorCode::kRefused, std::move(message)};
}

Error TooMany(std::string message) {
  return {ErrorCode::kUnavailable, std::move(message)};
}

}  // namespace

Result<uint32_t> Members::ChooseRank(const Hello& hello) const {
  if (hello.rank >= 0) {
    if (static_cast<uint32_t>(hello.rank) < max_workers_) {
      return static_cast<uint32_t>(hello.rank);
    }
    return Error{ErrorCode::kInvalidArgument,
                 "rank " + std::to_string(hello.rank) +
                     " is too high: this aggregator takes " +
                     std::to_string(max_workers_) + " workers"};
  }
  // The lowest that nobody has. One whose last owner would look newer than this
  // worker is no good: the worker would be fenced off when it reconnects.
  const bool reserving = !reserved_until_.HasPassed(Deadline::Clock::now());
  for (uint32_t rank = 0; rank < max_workers_; ++rank) {
    if (reserving && reserved_.contains(rank)) continue;
    const auto found = entries_.find(rank);
    if (found == entries_.end()) return rank;
    const Entry& entry = found->second;
    if (!entry.live && entry.member->attempt < hello.attempt) return rank;
  }
  return TooMany("there are " + std::to_string(max_workers_) +
                 " workers already, as many as this aggregator takes");
}

Result<Members::Admission> Members::Admit(
    const Hello& hello, const std::shared_ptr<Session>& session,
    std::chrono::milliseconds lease) {
  const std::lock_guard lock(mutex_);
  const Result<uint32_t> rank = ChooseRank(hello);
  if (!rank.ok()) return rank.error();
  Entry& entry = entries_[*rank];
  const bool known = entry.member != nullptr;
  if (known && hello.attempt < entry.member->attempt) {
    return Refuse("rank " + std::to_string(*rank) +
                  " was taken over by a newer worker, " + entry.member->name +
                  "; this one is to end");
  }
  const bool same = known && entry.member->attempt == hello.attempt;
  Admission admission;
  admission.previous = entry.session.lock();
  admission.same_attempt = same && entry.live;
  if (!same) {
    const auto member = std::make_shared<Member>();
    member->rank = *rank;
    member->attempt = hello.attempt;
    member->name = hello.name;
    if (known) member->counts = entry.member->counts;
    entry.member = member;
  }
  entry.member->lease.Set(lease);
  entry.session = session;
  if (!entry.live) live_.fetch_add(1, std::memory_order_relaxed);
  entry.live = true;
  admission.member = entry.member;
  return admission;
}

void Members::Reserve(std::set<uint32_t> ranks,
                      std::chrono::milliseconds lease) {
  const std::lock_guard lock(mutex_);
  reserved_ = std::move(ranks);
  reserved_until_.Set(lease);
}

bool Members::IsLive(uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(rank);
  return found != entries_.end() && found->second.live;
}

void Members::Detach(const Member& member, const Session* session) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[member.rank];
  if (entry.session.lock().get() == session) entry.session.reset();
}

bool Members::Leave(const Member& member) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[member.rank];
  if (!entry.live || entry.member.get() != &member) return false;
  entry.live = false;
  live_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

std::vector<Members::Expired> Members::TakeExpired(
    Deadline::Clock::time_point now) {
  std::vector<Expired> expired;
  const std::lock_guard lock(mutex_);
  for (auto& [rank, entry] : entries_) {
    if (!entry.live || !entry.member->lease.HasPassed(now)) continue;
    entry.live = false;
    live_.fetch_sub(1, std::memory_order_relaxed);
    expired.push_back({entry.member, entry.session.lock()});
  }
  return expired;
}

std::shared_ptr<Session> Members::SessionOf(uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(rank);
  return found == entries_.end() ? nullptr : found->second.session.lock();
}

std::vector<std::shared_ptr<Session>> Members::Sessions() const {
  std::vector<std::shared_ptr<Session>> sessions;
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, entry] : entries_) {
    if (auto session = entry.session.lock()) sessions.push_back(session);
  }
  return sessions;
}

std::vector<std::shared_ptr<Member>> Members::All() const {
  std::vector<std::shared_ptr<Member>> all;
  const std::lock_guard lock(mutex_);
  all.reserve(entries_.size());
  for (const auto& [rank, entry] : entries_) all.push_back(entry.member);
  return all;
}

}  // namespace tensorlightning
