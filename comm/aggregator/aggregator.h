// The aggregator: keeps the centre, and averages into it what workers push.
//
//   worker 0 --\                     +-- shard 0: C, c_0, c_1, c_2
//   worker 1 ---+-- sessions --------+-- shard 1: C, c_0, c_1, c_2
//   worker 2 --/   (a strand each)   +-- ...       (a strand each)
//                                    |
//                                    +-- snapshots (a thread that may block)
//
// It lives in the first worker's process, or by itself as tl-aggregator, or, a
// range of shards each, in several processes. It learns the model from the
// first worker that joins. It serves whoever knows the secret; without one it
// listens on loopback only, unless told otherwise in so many words.
//
// It serves one job, and beside it that job's companions, "<job>/...": a
// process that trains twice, or under a gradient policy, where the centre is a
// sum of gradients and whoever joins needs somebody's weights
// ("<job>/weights").
//
//   AggregatorOptions options;
//   options.secret = *Secret::FromEnvironment();
//   Result<std::unique_ptr<Aggregator>> aggregator =
//       Aggregator::Start(std::move(options));
#ifndef TENSORLIGHTNING_COMM_AGGREGATOR_AGGREGATOR_H_
#define TENSORLIGHTNING_COMM_AGGREGATOR_AGGREGATOR_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/endpoint.h"
#include "comm/log.h"
#include "comm/messages.h"
#include "comm/secret.h"
#include "comm/transport/timeouts.h"
#include "comm/transport/tls.h"
#include "kernels/result.h"

namespace tensorlightning {

inline constexpr const char* kCompanionSuffix = "/weights";

struct AggregatorOptions {
  std::vector<Endpoint> listen = {{"127.0.0.1", kDefaultPort, ""}};
  Secret secret;
  // Listen beyond loopback without a secret: anybody may join and read.
  bool open_to_anybody = false;
  TlsContext tls;  // None: plain.

  std::string job;           // Empty: that of the first worker.
  std::optional<Rule> rule;  // None: that of the first worker.
  uint32_t part = 0;         // Which of how many processes this is.
  uint32_t parts = 1;

  std::string snapshot_folder;  // Empty: none are written.
  std::chrono::milliseconds snapshot_every{60'000};

  std::chrono::milliseconds lease{30'000};
  Timeouts timeouts;
  uint32_t max_workers = 4096;
  uint32_t max_strangers = 512;  // Connections that have not joined yet.
  int threads = 2;
  std::string congestion;  // TCP's: cubic, bbr, ...; empty: the system's.
  Log log;
};

// Sums since the start, over the job and its companions; `live` is the largest
// of theirs, since a worker is in several.
struct AggregatorTotals {
  uint32_t live = 0;
  uint64_t connections = 0;
  uint64_t turned_away = 0;  // Connections that ended before joining.
  uint64_t pushes = 0;       // Applied; one per shard of an exchange.
  uint64_t repeated = 0;     // Known already: answered again, not applied.
  uint64_t refused = 0;      // NaN, Inf, huge, or no code at all.
  uint64_t resyncs = 0;
  uint64_t expired = 0;  // Workers whose lease ran out.
  uint64_t entries_in = 0;
  uint64_t entries_out = 0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t snapshots = 0;
  uint64_t failed_snapshots = 0;
};

class Service;

class Aggregator {
 public:
  // Listens when it returns. Goes on from the newest whole snapshot in
  // options.snapshot_folder.
  static Result<std::unique_ptr<Aggregator>> Start(AggregatorOptions options);
  // Stops it.
  ~Aggregator();

  // Where it listens, with the ports that the system has chosen.
  std::vector<Endpoint> endpoints() const;
  AggregatorTotals totals() const;
  // The same, and per worker, as JSON.
  std::string StatusJson() const;

  // The path of a snapshot that is now on disk.
  Result<std::string> TakeSnapshot();

  // Takes no more pushes, tells the workers, writes a last snapshot, ends. An
  // error when that snapshot could not be written.
  Status Stop();

 private:
  explicit Aggregator(std::shared_ptr<Service> service);
  std::shared_ptr<Service> service_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_AGGREGATOR_AGGREGATOR_H_
