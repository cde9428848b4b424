// A worker's way to the aggregator: the exchange runs on comm's threads while
// the caller trains, and no step ever waits for the network.
//
//   caller's thread                    comm's threads
//   Step(tensors) --- copy -------->   push, shard by shard ----> aggregator
//     ... trains ...                   replies into the view <---
//   Step(tensors) <-- correction ---
//
//   Result<std::unique_ptr<ElasticClient>> client =
//       ElasticClient::Start(options, layout, tensors);  // now: the centre
//   while (training) { ...; (*client)->Step(tensors); }
//   (*client)->Finish(tensors);                          // the centre again
//
// The elastic pull is computed from the model as it was when the exchange
// began, and added to what it has become since: steps taken meanwhile are kept.
//
// Connections may break and aggregators restart: pushes are numbered, kept
// until they are safe, sent again or owed again. One that is gone for good
// becomes an error of the next call; the caller's model stays as it is.
//
// Tensors are float32 in host memory, in the layout's order. All calls from one
// thread at a time, none from comm's own.
#ifndef TENSORLIGHTNING_COMM_CLIENT_ELASTIC_CLIENT_H_
#define TENSORLIGHTNING_COMM_CLIENT_ELASTIC_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/client/client_counts.h"
#include "comm/client/policy.h"
#include "comm/client/schedule.h"
#include "comm/endpoint.h"
#include "comm/layout.h"
#include "comm/log.h"
#include "comm/secret.h"
#include "comm/transport/timeouts.h"
#include "comm/transport/tls.h"
#include "kernels/result.h"

namespace tensorlightning {

class ThreadPool;
class ClientCore;

struct ClientOptions {
  std::vector<Endpoint> aggregators;  // One for each of its processes.
  std::string job = "default";
  int32_t rank = kAnyRank;
  // A later attempt of the same rank fences off an earlier one. 0: the time.
  uint64_t attempt = 0;
  Secret secret;
  TlsContext tls;  // None: plain.

  Policy policy;
  std::shared_ptr<Schedule> schedule;  // None: Every(10).

  Timeouts timeouts;
  // How long each wait of Start(), Finish() and the like may take.
  std::chrono::milliseconds patience{60'000};
  // Without any aggregator for this long, the worker is on its own for good.
  std::chrono::milliseconds give_up{600'000};
  // What may be kept of pushes that no snapshot of the aggregator holds yet.
  size_t max_kept_bytes = size_t{256} << 20;

  // Asked every now and then by calls that wait; true ends them, kTimedOut.
  std::function<bool()> interrupted;

  std::string congestion;            // TCP's; empty: the system's.
  std::shared_ptr<ThreadPool> pool;  // None: a thread of its own.
  Log log{2, LogLevel::kWarning};
  // Sees every push before it is sent, on comm's thread: for records and tests.
  std::function<void(uint32_t shard, uint64_t sequence,
                     std::span<const std::byte> code)>
      on_push;

  // From TL_AGGREGATOR (required), TL_JOB, TL_RANK, TL_ATTEMPT, TL_SECRET_FILE
  // or TL_SECRET, TL_TLS_CA.
  static Result<ClientOptions> FromEnvironment();
};

class ElasticClient {
 public:
  // Joins, and waits for the centre, which the tensors then hold: rank 0's, if
  // nobody was there before. (Under a gradient policy the centre is a sum of
  // gradients, and the tensors are left as they are.)
  static Result<std::unique_ptr<ElasticClient>> Start(ClientOptions options,
                                                      const Layout& layout,
                                                      Tensors tensors);
  // The same in two halves: begins to join; waits for the centre. kTimedOut
  // says why it is not here yet; the second may be tried again then.
  static Result<std::unique_ptr<ElasticClient>> Begin(ClientOptions options,
                                                      const Layout& layout,
                                                      Tensors tensors);
  Status Join(Tensors tensors, std::chrono::milliseconds patience);
  // Leaves.
  ~ElasticClient();

  // To be called after every step of training, or after several. Adds what has
  // come back, and starts an exchange if the schedule wants one and none is
  // under way. Whether it did.
  Result<bool> Step(Tensors tensors, uint64_t steps = 1);

  // The same whatever the schedule says. (Under a gradient policy what has come
  // back must have been collected: it is an error otherwise.) `everything`: for
  // the last one, which is not pruned.
  Result<bool> Exchange(Tensors tensors, bool everything = false);
  // Adds what has come back (under a gradient policy: replaces the tensors by
  // the mean of gradients). Whether there was anything.
  Result<bool> Collect(Tensors tensors);
  // Whether an exchange is under way.
  bool busy() const;
  // Why the worker is on its own for good, if it is: the exchange under way
  // will not end then. The same error as that of the next Exchange().
  std::optional<Error> failure() const;
  // What was wrong with what the last exchange was given (NaN, say); once, and
  // not again by the next Exchange().
  std::optional<Error> TakeExchangeError();
  // Until none is. kTimedOut names whom it waits for.
  Status Wait(std::chrono::milliseconds patience);

  // The aggregator's centre as it is now, into the tensors and the view. (Under
  // a gradient policy that is the sum of all gradients.) Who has never had
  // company is its own centre: the tensors stay as they are.
  Status Pull(Tensors tensors);
  // What this worker knows of the centre, which costs no traffic. Waits for
  // what is under way; what has come back must have been collected. Who has
  // never had company knows nothing of it: kUnavailable.
  Status ReadView(Tensors tensors);
  // Waits for what is under way, pulls the centre (not under a gradient
  // policy), leaves.
  Status Finish(Tensors tensors);
  // Leaves, not waiting for what is under way; only the counts stay.
  void Leave();

  // Whether both ends hold the same bits of this worker's view. Waits for what
  // is under way.
  Result<bool> ViewsAgree();
  // The aggregator's account of everybody, as JSON.
  Result<std::string> AggregatorStatus();

  uint32_t rank() const;
  uint32_t live() const;
  // The most that it has ever heard of at once.
  uint32_t most_live() const;
  // Tells it that it is not alone, if it has not heard so itself.
  void MeetOthers();
  // Whether there has never been another worker.
  bool alone() const;
  // Whether others had pushed before this worker joined.
  bool came_late() const;
  const ClientCounts& counts() const;

  // Cuts the connections, as a failing network would. For tests.
  void CutConnections();

 private:
  explicit ElasticClient(std::shared_ptr<ClientCore> core,
                         std::shared_ptr<ThreadPool> pool);

  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<ClientCore> core_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_CLIENT_ELASTIC_CLIENT_H_
