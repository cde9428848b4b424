#include "comm/aggregator/snapshot_keeper.h"

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "comm/snapshot.h"

namespace tensorlightning {
namespace {

// How soon to look again whether there is something to write.
constexpr std::chrono::milliseconds kFirst{100};

// Runs `work` on the strand and waits for it. Not on a thread of the pool.
template <typename Work>
void RunAndWait(const Strand& strand, Work work) {
  std::promise<void> done;
  asio::post(strand, [&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace

SnapshotKeeper::SnapshotKeeper(std::string folder,
                               std::chrono::milliseconds every,
                               uint64_t next_number, FindCentre centre,
                               FindJob job, const Log& log)
    : folder_(std::move(folder)),
      every_(every),
      centre_(std::move(centre)),
      job_(std::move(job)),
      log_(log),
      any_before_(next_number > 1),
      next_number_(next_number),
      thread_([this] { Run(); }) {}

SnapshotKeeper::~SnapshotKeeper() { Stop(); }

void SnapshotKeeper::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SnapshotKeeper::Run() {
  std::unique_lock lock(mutex_);
  // The first one as soon as there is something: until then a crash would lose
  // the weights that everybody started from.
  const auto none_yet = [this] {
    return !any_before_ && written_ == 0 && failed_ == 0;
  };
  while (true) {
    const bool first = none_yet();
    const bool ended =
        wake_.wait_for(lock, first ? std::min(kFirst, every_) : every_,
                       [this] { return stopping_; });
    if (ended) return;
    if (first && !none_yet()) continue;  // Somebody has asked for it meanwhile.
    lock.unlock();
    (void)Write();  // Logged there.
    lock.lock();
  }
}

Result<std::string> SnapshotKeeper::Write() {
  const std::lock_guard one_at_a_time(writing_);
  const std::shared_ptr<Centre> centre = centre_();
  if (centre == nullptr) {
    return Error{ErrorCode::kUnavailable,
                 "there is nothing to write yet: no worker has joined"};
  }
  Result<std::string> path = WriteAll(*centre);
  if (path.ok()) {
    written_.fetch_add(1);
    log_.Info("snapshot", {{"path", *path}});
  } else if (path.error().code != ErrorCode::kUnavailable) {
    failed_.fetch_add(1);
    log_.Error("snapshot failed", {{"reason", path.error().message}});
  }
  return path;
}

Result<std::string> SnapshotKeeper::WriteAll(Centre& centre) {
  const ShardRange range = centre.range();
  Result<SnapshotWriter> writer = SnapshotWriter::Create(
      folder_,
      SnapshotHeader{job_(), centre.rule(), centre.layout().Serialise(), range,
                     next_number_});
  if (!writer.ok()) return writer.error();
  std::vector<std::vector<AppliedPush>> applied;
  ShardSnapshot copy;
  for (uint32_t i = range.begin; i < range.end; ++i) {
    Centre::Served& served = centre.at(i);
    bool complete = false;
    RunAndWait(served.strand, [&] {
      complete = served.state.has_centre();
      if (complete) served.state.CopyTo(copy);
    });
    if (!complete) {
      return Error{ErrorCode::kUnavailable,
                   "there is nothing to write yet: the first weights have not "
                   "all come"};
    }
    const Status added = writer->Add(copy);
    if (!added.ok()) return added.error();
    applied.push_back(copy.applied);
  }
  // Whatever comes of it: the name may be there.
  ++next_number_;
  Result<std::string> path = writer->Commit();
  if (!path.ok()) return path;
  for (uint32_t i = range.begin; i < range.end; ++i) {
    Centre::Served& served = centre.at(i);
    RunAndWait(served.strand,
               [&] { served.state.MarkDurable(applied[i - range.begin]); });
  }
  return path;
}

}  // namespace tensorlightning
