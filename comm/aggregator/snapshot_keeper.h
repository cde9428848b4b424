// Writes snapshots of the centre now and then, on a thread that may block.
//
// Shard by shard: a shard is copied on its strand, in the time of a memcpy, and
// written to disk from the copy. Shards promise nothing across each other, so
// neither need their snapshots.
#ifndef TENSORLIGHTNING_COMM_AGGREGATOR_SNAPSHOT_KEEPER_H_
#define TENSORLIGHTNING_COMM_AGGREGATOR_SNAPSHOT_KEEPER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/aggregator/centre.h"
#include "comm/log.h"
#include "kernels/result.h"

namespace tensorlightning {

class SnapshotKeeper {
 public:
  // The centre, or none as long as there is no model.
  using FindCentre = std::function<std::shared_ptr<Centre>()>;
  using FindJob = std::function<std::string()>;

  SnapshotKeeper(std::string folder, std::chrono::milliseconds every,
                 uint64_t next_number, FindCentre centre, FindJob job,
                 const Log& log);
  ~SnapshotKeeper();

  // No more by itself; Write() still works.
  void Stop();

  // Now, on the calling thread, which must not be one of the pool.
  Result<std::string> Write();

  uint64_t written() const { return written_.load(); }
  uint64_t failed() const { return failed_.load(); }

 private:
  void Run();
  Result<std::string> WriteAll(Centre& centre);

  const std::string folder_;
  const std::chrono::milliseconds every_;
  const FindCentre centre_;
  const FindJob job_;
  const Log& log_;
  const bool any_before_;

  std::mutex writing_;
  uint64_t next_number_;
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> failed_{0};

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_AGGREGATOR_SNAPSHOT_KEEPER_H_
