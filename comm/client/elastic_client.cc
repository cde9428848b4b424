#include "comm/client/elastic_client.h"

#include <chrono>
#include <cstdlib>
#include <utility>

#include "comm/client/client_core.h"
#include "comm/transport/thread_pool.h"
#include "kernels/finite.h"

namespace tensorlightning {
namespace {

constexpr std::chrono::milliseconds kLeaving{700};

uint64_t TimeAsAttempt() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

Result<std::unique_ptr<ElasticClient>> ElasticClient::Start(
    ClientOptions options, const Layout& layout, Tensors tensors) {
  const std::chrono::milliseconds patience = options.patience;
  Result<std::unique_ptr<ElasticClient>> client =
      Begin(std::move(options), layout, tensors);
  if (!client.ok()) return client;
  const Status joined = (*client)->Join(tensors, patience);
  if (!joined.ok()) return joined.error();
  return client;
}

Result<std::unique_ptr<ElasticClient>> ElasticClient::Begin(
    ClientOptions options, const Layout& layout, Tensors tensors) {
  if (options.aggregators.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "no aggregator is given: set TL_AGGREGATOR=host:port"};
  }
  Status status = options.policy.Check();
  if (!status.ok()) return status.error();
  if (options.job.empty() || options.job.size() > kMaxIdBytes) {
    return Error{
        ErrorCode::kInvalidArgument,
        "a job's name has 1 to " + std::to_string(kMaxIdBytes) + " bytes"};
  }
  if (options.attempt == 0) options.attempt = TimeAsAttempt();
  if (options.schedule == nullptr) {
    options.schedule = std::make_shared<Every>(10);
  }
  // The core must not own it: the core's last owner may be a handler that runs
  // on the pool, and a pool can't end on a thread of its own.
  std::shared_ptr<ThreadPool> pool = std::move(options.pool);
  if (pool == nullptr) pool = std::make_shared<ThreadPool>(1);

  const bool averages = options.policy.rule == Rule::kAverage;
  const ShardMap map(layout);
  status = map.CheckSizes(tensors);
  if (!status.ok()) return status.error();
  std::vector<float> weights(map.entries());
  if (averages) {
    map.Gather(tensors, weights);
    status = CheckFinite(weights, "the model", kUsableBits);
    if (!status.ok()) return status.error();
  }
  auto made = std::make_shared<ClientCore>(std::move(options), layout,
                                           std::move(weights), *pool);
  // The client alone owns it from here on: the pool must outlive it.
  std::unique_ptr<ElasticClient> client(
      new ElasticClient(std::move(made), std::move(pool)));
  client->core_->Begin();
  return client;
}

Status ElasticClient::Join(Tensors tensors,
                           std::chrono::milliseconds patience) {
  Status status = core_->map().CheckSizes(tensors);
  if (status.ok()) status = core_->WaitUntilSynced(patience);
  const bool averages = core_->options().policy.rule == Rule::kAverage;
  if (status.ok() && averages) {
    status = core_->StageView();
    if (status.ok()) core_->map().Scatter(core_->staging(), tensors);
  }
  return status;
}

ElasticClient::ElasticClient(std::shared_ptr<ClientCore> core,
                             std::shared_ptr<ThreadPool> pool)
    : pool_(std::move(pool)), core_(std::move(core)) {}

ElasticClient::~ElasticClient() { Leave(); }

void ElasticClient::Leave() {
  // What has not ended by then ends with the next turn of its strand.
  if (!core_->End(kLeaving)) (void)core_->End(kLeaving);
}

Result<bool> ElasticClient::Collect(Tensors tensors) {
  Status sizes = core_->map().CheckSizes(tensors);
  if (!sizes.ok()) return sizes.error();
  if (!core_->correction_waiting()) return false;
  if (core_->options().policy.rule == Rule::kAverage) {
    core_->map().ScatterAdd(core_->staging(), tensors);
  } else {
    core_->map().Scatter(core_->staging(), tensors);
  }
  core_->CorrectionTaken();
  return true;
}

Result<bool> ElasticClient::Exchange(Tensors tensors, bool everything) {
  if (std::optional<Error> failure = core_->failure()) return *failure;
  if (std::optional<Error> error = core_->TakeExchangeError()) return *error;
  const bool averages = core_->options().policy.rule == Rule::kAverage;
  if (!averages && core_->correction_waiting()) {
    // Collecting it here would overwrite the gradient that is to be sent.
    return Error{ErrorCode::kInvalidArgument,
                 "the mean of the last gradients has not been collected"};
  }
  const Result<bool> collected = Collect(tensors);
  if (!collected.ok()) return collected.error();
  if (core_->busy()) {
    core_->counts().backed_off.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  core_->map().Gather(tensors, core_->staging());
  core_->StartExchange(everything);
  core_->options().schedule->Started(tensors);
  return true;
}

Result<bool> ElasticClient::Step(Tensors tensors, uint64_t steps) {
  core_->counts().steps.fetch_add(steps, std::memory_order_relaxed);
  if (!core_->options().schedule->Due(tensors, steps)) {
    const Result<bool> collected = Collect(tensors);
    if (!collected.ok()) return collected.error();
    return false;
  }
  return Exchange(tensors);
}

bool ElasticClient::busy() const { return core_->busy(); }

std::optional<Error> ElasticClient::failure() const { return core_->failure(); }

std::optional<Error> ElasticClient::TakeExchangeError() {
  return core_->TakeExchangeError();
}

Status ElasticClient::Wait(std::chrono::milliseconds patience) {
  return core_->WaitUntilIdle(patience);
}

Status ElasticClient::Pull(Tensors tensors) {
  Status status = core_->map().CheckSizes(tensors);
  if (!status.ok()) return status;
  // What the last exchange wants to add is void: the centre replaces it.
  status = core_->WaitUntilIdle(core_->options().patience);
  if (!status.ok()) return status;
  if (core_->alone() && core_->options().policy.rule == Rule::kAverage) {
    const Result<bool> collected = Collect(tensors);
    return collected.ok() ? Status(Done{}) : Status(collected.error());
  }
  core_->CorrectionTaken();
  status = core_->PullAll();
  if (status.ok()) status = core_->StageView();
  if (status.ok()) core_->map().Scatter(core_->staging(), tensors);
  return status;
}

Status ElasticClient::ReadView(Tensors tensors) {
  Status status = core_->map().CheckSizes(tensors);
  if (status.ok()) status = core_->WaitUntilIdle(core_->options().patience);
  if (!status.ok()) return status;
  if (core_->alone()) {
    return Error{ErrorCode::kUnavailable,
                 "there has never been another worker"};
  }
  status = core_->StageView();
  if (status.ok()) core_->map().Scatter(core_->staging(), tensors);
  return status;
}

Status ElasticClient::Finish(Tensors tensors) {
  const bool averages = core_->options().policy.rule == Rule::kAverage;
  Status status = averages ? Pull(tensors)
                           : core_->WaitUntilIdle(core_->options().patience);
  Leave();
  return status;
}

Result<bool> ElasticClient::ViewsAgree() { return core_->CompareDigests(); }

Result<std::string> ElasticClient::AggregatorStatus() {
  return core_->AskStatus();
}

uint32_t ElasticClient::rank() const { return core_->rank(); }
uint32_t ElasticClient::live() const { return core_->live(); }
uint32_t ElasticClient::most_live() const { return core_->most_live(); }
void ElasticClient::MeetOthers() { core_->MeetOthers(); }
bool ElasticClient::alone() const { return core_->alone(); }
bool ElasticClient::came_late() const { return core_->first_version() > 0; }
const ClientCounts& ElasticClient::counts() const { return core_->counts(); }
void ElasticClient::CutConnections() { core_->CutConnections(); }

}  // namespace tensorlightning
