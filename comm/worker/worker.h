// One worker of a job, as a framework's adapter sees it: joins, exchanges after
// steps, leaves. What TensorFlow's ops and Caffe's solver share.
//
//   alone      { Worker -> ElasticClient -> Aggregator }
//   embedding  { Worker -> ElasticClient -> Aggregator } <- other workers
//   beside     { Worker -> ElasticClient } -> tl-aggregator
//
// Under a gradient policy there are two clients: one for the gradients, and one
// for the weights, job "<job>/weights", from which everybody starts. Rank 0's
// weights are mirrored there now and then, so that a worker that comes later,
// or comes back, has some to start from.
//
// Waiting calls end when Interrupt() was called, or `interrupted` says so.
// Calls may come from any thread, one at a time but for the last five below.
#ifndef TENSORLIGHTNING_COMM_WORKER_WORKER_H_
#define TENSORLIGHTNING_COMM_WORKER_WORKER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/aggregator/aggregator.h"
#include "comm/client/elastic_client.h"
#include "comm/layout.h"
#include "comm/worker/gradient_mean.h"
#include "comm/worker/progress_report.h"
#include "comm/worker/worker_options.h"
#include "kernels/result.h"

namespace tensorlightning {

class Worker {
 public:
  // Begins to join. The tensors are the model's weights, here and in all calls
  // but AverageGradients(); rank 0's are everybody's first ones.
  static Result<std::unique_ptr<Worker>> Begin(
      WorkerOptions options, const Layout& layout, Tensors weights,
      std::function<bool()> interrupted = {});
  ~Worker();

  // Whether it has joined, and the weights are everybody's. kTimedOut only
  // after all of the patience that the options give, with the reason.
  Result<bool> Joined(Tensors weights, std::chrono::milliseconds patience);

  // After so many steps. Never waits. Whether an exchange has begun.
  Result<bool> Step(Tensors weights, uint64_t steps);
  // The same whatever the schedule says.
  Result<bool> Exchange(Tensors weights);
  // Whether no exchange is under way (any more).
  Result<bool> Wait(std::chrono::milliseconds patience);
  Status Pull(Tensors weights);
  // The centre as this worker knows it, for who wants to look at it: into
  // `shown`, and `weights` are up to date. Waits a second at most for an
  // exchange under way, and costs no traffic. Without others the centre is the
  // weights.
  Status Show(Tensors weights, Tensors shown);
  // A last exchange, and the centre into the weights; with `own` they stay as
  // they are. Then it leaves.
  Status Finish(Tensors weights, bool own);
  // The same, but rank 0 stays until all others have had their last exchange:
  // what it ends with is the work of all. Others don't wait.
  Status FinishTogether(Tensors weights, bool own);

  // Under a gradient policy: this worker's gradients become the mean of all.
  // Waits for the others, unless the policy is gradient-async: then what has
  // come by now is delivered, which may be nothing.
  Status AverageGradients(Tensors gradients);

  const WorkerOptions& options() const { return options_; }
  // For the launcher's live line, with options.report.
  void set_loss(double loss) { loss_ = loss; }

  // Ends waiting calls, now and later.
  void Interrupt() { told_to_stop_->store(true); }
  uint32_t rank() const;
  uint32_t live() const;
  std::string StatisticsJson() const;

 private:
  Worker(WorkerOptions options, Layout layout,
         std::function<bool()> interrupted);

  Status Connect(Tensors weights);
  Status BeginWeights(Tensors weights);
  Result<ClientOptions> MakeClientOptions() const;
  Result<bool> TooLate(const Status& status) const;
  Status LastExchange(Tensors weights);
  Status WaitForOthersToLeave();
  Status TakeFinal(Tensors weights, bool own);
  void Leave();
  void Report(bool done);

  const WorkerOptions options_;
  const Layout layout_;
  const std::shared_ptr<std::atomic<bool>> told_to_stop_;
  const std::function<bool()> interrupted_;
  const std::chrono::steady_clock::time_point begun_;

  std::shared_ptr<Aggregator> aggregator_;  // Embedded; before the clients.
  std::vector<Endpoint> where_;
  Secret secret_;
  std::unique_ptr<ElasticClient> client_;
  std::unique_ptr<ElasticClient> weights_client_;  // Gradient policies.
  // The same, for whoever asks for statistics meanwhile.
  std::atomic<const ElasticClient*> shown_weights_client_{nullptr};
  bool joined_ = false;
  bool finished_ = false;
  std::atomic<uint64_t> steps_{0};
  ProgressReport report_;
  std::optional<double> loss_;
  std::optional<GradientMean> mean_;  // Gradient policies.
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_WORKER_WORKER_H_
