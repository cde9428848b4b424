#include "comm/worker/worker.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <thread>
#include <utility>

#include "comm/json.h"
#include "comm/worker/embedded_aggregators.h"

namespace tensorlightning {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::milliseconds kShowPatience{1000};
constexpr uint64_t kPeriodsPerMirror = 10;
constexpr std::chrono::milliseconds kBetweenLooks{100};
// For slower workers, at the end.
constexpr std::chrono::milliseconds kLongestEnd{600'000};

// Of a member of the aggregator's account; 0 if it is not there.
uint64_t NumberIn(std::string_view json, const std::string& name) {
  const std::string key = "\"" + name + "\":";
  const size_t found = json.find(key);
  uint64_t number = 0;
  if (found != std::string_view::npos) {
    const char* const begin = json.data() + found + key.size();
    std::from_chars(begin, json.data() + json.size(), number);
  }
  return number;
}

uint64_t Sum(const ElasticClient* a, const ElasticClient* b,
             std::atomic<uint64_t> ClientCounts::*count) {
  uint64_t sum = 0;
  for (const ElasticClient* client : {a, b}) {
    if (client != nullptr) sum += (client->counts().*count).load();
  }
  return sum;
}

}  // namespace

Worker::Worker(WorkerOptions options, Layout layout,
               std::function<bool()> interrupted)
    : options_(std::move(options)),
      layout_(std::move(layout)),
      told_to_stop_(std::make_shared<std::atomic<bool>>(false)),
      interrupted_([told = told_to_stop_, also = std::move(interrupted)] {
        return told->load() || (also && also());
      }),
      begun_(Clock::now()) {
  if (options_.report != 0) report_ = ProgressReport::FromEnvironment();
}

Worker::~Worker() {
  if (joined_) Report(/*done=*/true);
}

Result<std::unique_ptr<Worker>> Worker::Begin(
    WorkerOptions options, const Layout& layout, Tensors weights,
    std::function<bool()> interrupted) {
  Status status = options.Check();
  if (!status.ok()) return status.error();
  std::unique_ptr<Worker> worker(
      new Worker(std::move(options), layout, std::move(interrupted)));
  status = worker->Connect(weights);
  if (!status.ok()) return status.error();
  return worker;
}

// ---- Joining. ---------------------------------------------------------------

Status Worker::Connect(Tensors weights) {
  Result<Secret> secret = options_.ReadSecret();
  if (!secret.ok()) return secret.error();
  secret_ = std::move(*secret);
  if (!options_.embed.empty()) {
    Result<std::shared_ptr<Aggregator>> embedded =
        EmbedForAll(options_.embed, secret_, options_.job);
    if (!embedded.ok()) return embedded.error();
    aggregator_ = *embedded;
  } else if (options_.aggregator.empty()) {
    if (options_.size > 1) {
      return Error{ErrorCode::kInvalidArgument,
                   "the job has " + std::to_string(options_.size) +
                       " workers, and nothing says where their aggregator is: "
                       "set TL_AGGREGATOR=host:port, or start with tlrun"};
    }
    Result<std::shared_ptr<Aggregator>> embedded =
        EmbedForOne(secret_, options_.job);
    if (!embedded.ok()) return embedded.error();
    aggregator_ = *embedded;
  }
  if (aggregator_ != nullptr) {
    where_ = {ReachableEndpoint(*aggregator_)};
  } else {
    Result<std::vector<Endpoint>> where =
        Endpoint::ParseList(options_.aggregator);
    if (!where.ok()) {
      return Error{where.error().code, "aggregator=" + options_.aggregator +
                                           ": " + where.error().message};
    }
    where_ = std::move(*where);
  }
  Result<ClientOptions> client_options = MakeClientOptions();
  if (!client_options.ok()) return client_options.error();
  Result<std::unique_ptr<ElasticClient>> client =
      ElasticClient::Begin(std::move(*client_options), layout_, weights);
  if (!client.ok()) return client.error();
  client_ = std::move(*client);
  if (options_.is_gradient()) {
    mean_.emplace(options_, *client_, interrupted_);
  }
  return Done{};
}

Result<ClientOptions> Worker::MakeClientOptions() const {
  ClientOptions options;
  options.aggregators = where_;
  options.job = options_.job;
  options.rank = options_.rank;
  options.attempt = options_.attempt;
  options.secret = secret_;
  options.patience = options_.patience();
  options.interrupted = interrupted_;
  if (!options_.tls_ca.empty()) {
    Result<TlsContext> tls = MakeClientTls(options_.tls_ca);
    if (!tls.ok()) return tls.error();
    options.tls = std::move(*tls);
  }
  Result<Policy> policy = options_.MakePolicy();
  if (!policy.ok()) return policy.error();
  options.policy = *policy;
  Result<std::shared_ptr<Schedule>> schedule = options_.MakeSchedule();
  if (!schedule.ok()) return schedule.error();
  options.schedule = *schedule;
  return options;
}

// By now this worker takes part in the others' rounds: nobody who is counted
// here can be missed by the first of them.
Status Worker::BeginWeights(Tensors weights) {
  Result<ClientOptions> options = MakeClientOptions();
  if (!options.ok()) return options.error();
  options->job += kCompanionSuffix;
  options->rank = static_cast<int32_t>(client_->rank());
  // All of them, and not often: whoever comes back should not start from some
  // old and some new weights.
  options->policy = Policy::Mirror();
  options->policy.up = options->policy.down = {SelectionRule::ChunkTopK(1.0),
                                               ValueCode::kBfloat16};
  options->schedule =
      std::make_shared<Every>(kPeriodsPerMirror * options_.period);
  Result<std::unique_ptr<ElasticClient>> client =
      ElasticClient::Begin(std::move(*options), layout_, weights);
  if (!client.ok()) return client.error();
  weights_client_ = std::move(*client);
  shown_weights_client_.store(weights_client_.get());
  return Done{};
}

// A wait that was cut into slices is over when its patience is.
Result<bool> Worker::TooLate(const Status& status) const {
  if (status.error().code != ErrorCode::kTimedOut) return status.error();
  const auto waited = Clock::now() - begun_;
  if (waited < options_.patience()) return false;
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(waited).count();
  // Of the last slice only what it waited for is of interest.
  std::string_view what = status.error().message;
  constexpr std::string_view kSliceEnds = " ms for ";
  const size_t slice = what.find(kSliceEnds);
  if (slice != std::string_view::npos) {
    what.remove_prefix(slice + kSliceEnds.size());
  }
  return Error{ErrorCode::kTimedOut,
               "waited " + std::to_string(seconds) + " s for " +
                   std::string(what) +
                   " (tlrun starts an aggregator, and tells workers where it "
                   "is; patience is how long they wait)"};
}

Result<bool> Worker::Joined(Tensors weights,
                            std::chrono::milliseconds patience) {
  if (joined_) return true;
  const auto until = Clock::now() + patience;
  const auto left = [&] {
    return std::max(std::chrono::milliseconds(1),
                    std::chrono::duration_cast<std::chrono::milliseconds>(
                        until - Clock::now()));
  };
  if (weights_client_ == nullptr) {
    const Status status = client_->Join(weights, left());
    if (!status.ok()) return TooLate(status);
    if (options_.is_gradient()) {
      const Status begun = BeginWeights(weights);
      if (!begun.ok()) return begun.error();
    }
  }
  if (weights_client_ != nullptr) {
    const Status status = weights_client_->Join(weights, left());
    if (!status.ok()) return TooLate(status);
    // Who comes later than the first round takes part in the next one, whoever
    // else has gone by then.
    while (!client_->came_late() &&
           weights_client_->most_live() < options_.size) {
      if (Clock::now() >= until || interrupted_()) {
        return TooLate(
            Error{ErrorCode::kTimedOut,
                  std::to_string(weights_client_->live()) + " of " +
                      std::to_string(options_.size) +
                      " workers have joined, and a gradient policy needs all"});
      }
      std::this_thread::sleep_for(kPoll);
    }
  }
  joined_ = true;
  return true;
}

// ---- Training. --------------------------------------------------------------

Result<bool> Worker::Step(Tensors weights, uint64_t steps) {
  steps_.fetch_add(steps, std::memory_order_relaxed);
  if (report_.IsDue()) Report(/*done=*/false);
  if (weights_client_ == nullptr) return client_->Step(weights, steps);
  if (client_->rank() != 0 || client_->alone()) return false;
  const Result<bool> mirrored = weights_client_->Step(weights, steps);
  if (!mirrored.ok()) return mirrored.error();
  return false;
}

Result<bool> Worker::Exchange(Tensors weights) {
  if (weights_client_ == nullptr) return client_->Exchange(weights);
  if (client_->rank() != 0) return false;
  return weights_client_->Exchange(weights);
}

Result<bool> Worker::Wait(std::chrono::milliseconds patience) {
  const Status status = client_->Wait(patience);
  if (status.ok()) return true;
  if (status.error().code == ErrorCode::kTimedOut) return false;
  return status.error();
}

Status Worker::Pull(Tensors weights) {
  // Everybody's weights are the same under a gradient policy.
  if (weights_client_ != nullptr) return Done{};
  return client_->Pull(weights);
}

Status Worker::Show(Tensors weights, Tensors shown) {
  Status status = client_->Wait(std::min(options_.patience(), kShowPatience));
  if (!status.ok()) return status;
  if (weights_client_ == nullptr) {
    const Result<bool> collected = client_->Collect(weights);
    if (!collected.ok()) return collected.error();
    if (!client_->alone()) return client_->ReadView(shown);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    std::copy(weights[i].begin(), weights[i].end(), shown[i].begin());
  }
  return Done{};
}

// What has been learned since the last exchange.
Status Worker::LastExchange(Tensors weights) {
  Status status = client_->Wait(options_.patience());
  if (!status.ok()) return status;
  const Result<bool> last = client_->Exchange(weights, options_.ends_apart());
  if (!last.ok()) return last.error();
  return client_->Wait(options_.patience());
}

Status Worker::TakeFinal(Tensors weights, bool own) {
  if (!own) return client_->Pull(weights);
  const Result<bool> collected = client_->Collect(weights);
  return collected.ok() ? Status(Done{}) : collected.error();
}

void Worker::Leave() {
  client_->Leave();
  if (weights_client_ != nullptr) weights_client_->Leave();
}

Status Worker::Finish(Tensors weights, bool own) {
  if (std::exchange(finished_, true)) return Done{};
  Status status = Done{};
  // Who comes when this one has gone finds all of its work in the centre.
  const bool leaves_work = options_.ends_apart() || !client_->alone();
  if (weights_client_ == nullptr && leaves_work) {
    status = LastExchange(weights);
    if (status.ok()) status = TakeFinal(weights, own);
  }
  Leave();
  return status;
}

Status Worker::FinishTogether(Tensors weights, bool own) {
  if (rank() != 0 || weights_client_ != nullptr || options_.size <= 1 ||
      options_.ends_apart()) {
    return Finish(weights, own);
  }
  if (std::exchange(finished_, true)) return Done{};
  Status status = LastExchange(weights);
  if (status.ok()) status = WaitForOthersToLeave();
  if (status.ok()) status = TakeFinal(weights, own);
  Leave();
  return status;
}

// Who was never there may still be starting; who was and is gone has ended.
Status Worker::WaitForOthersToLeave() {
  const auto begin = Clock::now();
  while (true) {
    // Its account is newer than what this worker has heard, and knows also who
    // came and went meanwhile.
    const Result<std::string> account = client_->AggregatorStatus();
    if (!account.ok()) return account.error();
    const uint64_t known = NumberIn(*account, "known");
    if (known > 1) client_->MeetOthers();
    const auto waited = Clock::now() - begin;
    const bool all_came =
        known >= options_.size || waited > options_.patience();
    if (all_came && NumberIn(*account, "live") <= 1) return Done{};
    if (waited > std::max(kLongestEnd, options_.patience())) return Done{};
    if (interrupted_()) {
      return Error{ErrorCode::kTimedOut,
                   "interrupted while other workers had not ended yet"};
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

Status Worker::AverageGradients(Tensors gradients) {
  if (!mean_.has_value()) {
    return Error{ErrorCode::kInvalidArgument,
                 "gradients are averaged under policy=gradient, not under "
                 "policy=" +
                     options_.policy};
  }
  if (!joined_) {
    return Error{ErrorCode::kInvalidArgument,
                 "this worker has not joined yet: wait for tl_joined first"};
  }
  return mean_->Average(gradients);
}

// ---- What is to be seen. ----------------------------------------------------

uint32_t Worker::rank() const { return client_->rank(); }
uint32_t Worker::live() const { return client_->live(); }

namespace {

double Mean(uint64_t sum, uint64_t count) {
  return static_cast<double>(sum) /
         static_cast<double>(std::max<uint64_t>(count, 1));
}

}  // namespace

void Worker::Report(bool done) {
  const ClientCounts& counts = client_->counts();
  const ElasticClient* const weights = shown_weights_client_.load();
  report_.Send(
      {.steps = steps_.load(),
       .loss = loss_,
       .sent = Sum(client_.get(), weights, &ClientCounts::bytes_sent),
       .received = Sum(client_.get(), weights, &ClientCounts::bytes_received),
       .dense = counts.dense_bytes.load(),
       .exchanges = counts.exchanges.load(),
       .density = options_.density,
       .staleness = Mean(counts.staleness.load(), counts.pushes.load()),
       .live = live(),
       .policy = options_.policy,
       .done = done});
}

std::string Worker::StatisticsJson() const {
  const ClientCounts& counts = client_->counts();
  const auto sum = [this](std::atomic<uint64_t> ClientCounts::*count) {
    return Sum(client_.get(), shown_weights_client_.load(), count);
  };
  std::ostringstream out;
  {
    JsonObject all(out);
    all.Add("rank", rank());
    all.Add("live", live());
    all.Add("policy", options_.policy);
    all.Add("period", options_.period);
    all.Add("density", options_.density);
    all.Add("reply_density", options_.reply_density);
    all.Add("bits", options_.bits);
    all.Add("steps", steps_.load());
    all.Add("exchanges", counts.exchanges.load());
    all.Add("bytes_sent", sum(&ClientCounts::bytes_sent));
    all.Add("bytes_received", sum(&ClientCounts::bytes_received));
    all.Add("dense_bytes", counts.dense_bytes.load());
    all.Add("entries_sent", sum(&ClientCounts::entries_sent));
    all.Add("entries_received", sum(&ClientCounts::entries_received));
    all.Add("backed_off", counts.backed_off.load());
    all.Add("reconnects", sum(&ClientCounts::reconnects));
    all.Add("resyncs", sum(&ClientCounts::resyncs));
    all.Add("not_finite", sum(&ClientCounts::not_finite));
    all.Add("refused", sum(&ClientCounts::refused));
    all.Add("staleness", Mean(counts.staleness.load(), counts.pushes.load()));
    all.Add("steps_behind",
            Mean(counts.steps_behind.load(), counts.exchanges.load()));
    all.Add("latency_ms",
            std::chrono::duration<double, std::milli>(counts.latency.Mean())
                .count());
    all.Add("busy", client_->busy());
    const std::optional<Error> failure = client_->failure();
    if (failure.has_value()) {
      all.Add("failure", failure->message);
    } else {
      all.Key("failure") << "null";
    }
    all.Add("aggregator", where_.front().ToString());
  }
  return out.str();
}

}  // namespace tensorlightning
