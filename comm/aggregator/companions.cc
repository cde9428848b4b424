// Service's companions: the jobs beside its own.

#include <cctype>
#include <memory>
#include <string>
#include <utility>

#include "comm/aggregator/service.h"

namespace tensorlightning {
namespace {

// Of one job. Each training in a process, and each wait for others, is one.
constexpr size_t kMaxCompanions = 4096;

}  // namespace

Result<Service*> Service::ServiceOf(const std::string& job) {
  const std::lock_guard lock(mutex_);
  const bool is_companion = !job_.empty() && job.starts_with(job_ + "/");
  if (!is_companion || stopping_) return this;
  const auto found = companions_.find(job);
  if (found != companions_.end()) return found->second.get();
  if (companions_.size() >= kMaxCompanions) {
    return Error{ErrorCode::kRefused, "job '" + job_ + "' has " +
                                          std::to_string(kMaxCompanions) +
                                          " jobs beside it already"};
  }
  // Who asks for a new one has done with the last: one that nobody uses becomes
  // this job's. (Its snapshots would not.)
  if (options_.snapshot_folder.empty()) {
    for (auto old = companions_.begin(); old != companions_.end(); ++old) {
      if (!old->second->TakeOver(job)) continue;
      auto node = companions_.extract(old);
      node.key() = job;
      return companions_.insert(std::move(node)).position->second.get();
    }
  }
  auto made = std::make_unique<Service>(OptionsOfCompanion(job), pool_);
  const Status started = made->Start();
  if (!started.ok()) return started.error();
  return companions_.emplace(job, std::move(made)).first->second.get();
}

AggregatorOptions Service::OptionsOfCompanion(const std::string& job) const {
  AggregatorOptions options = options_;
  options.listen.clear();
  options.job = job;
  options.rule.reset();
  if (!options.snapshot_folder.empty()) {
    // A folder's name from whatever a worker calls its job.
    std::string name = job.substr(job_.size() + 1);
    for (char& c : name) {
      const auto byte = static_cast<unsigned char>(c);
      if (std::isalnum(byte) == 0 && c != '-' && c != '_') c = '_';
    }
    options.snapshot_folder += "/" + name;
  }
  return options;
}

bool Service::TakeOver(const std::string& job) {
  const std::lock_guard lock(mutex_);
  // A session that is being admitted has the centre already.
  const bool used = members_.live() > 0 || !members_.Sessions().empty() ||
                    centre_.use_count() > 1;
  if (used) return false;
  centre_.reset();
  job_ = job;
  return true;
}

}  // namespace tensorlightning
