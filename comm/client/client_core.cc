#include "comm/client/client_core.h"

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

namespace tensorlightning {
namespace {

// Before a question is asked again that a broken connection has swallowed.
constexpr std::chrono::milliseconds kAskAgain{50};
// How often whoever waits looks whether it was interrupted.
constexpr std::chrono::milliseconds kLookUp{50};

}  // namespace

ClientCore::ClientCore(ClientOptions options, Layout layout,
                       std::vector<float> weights, ThreadPool& pool)
    : options_(std::move(options)),
      layout_(std::move(layout)),
      map_(layout_),
      pool_(pool),
      strand_(pool.MakeStrand()),
      weights_(std::move(weights)),
      layout_bytes_(layout_.Serialise()),
      tick_(strand_),
      round_(strand_),
      staging_(map_.entries()) {
  const auto scratch = std::make_shared<WorkerScratch>();
  size_t largest = 0;
  for (const Shard& shard : map_.shards()) {
    ShardLine line;
    line.worker = MakeWorkerShard(options_.policy, shard, scratch);
    largest = std::max(largest, line.worker->MaxPushBytes());
    lines_.push_back(std::move(line));
  }
  push_.resize(largest);
  unsynced_ = lines_.size();
  for (const Endpoint& endpoint : options_.aggregators) {
    links_.push_back(std::make_unique<Link>(strand_));
    links_.back()->index = links_.size() - 1;
    links_.back()->endpoint = endpoint;
  }
}

void ClientCore::Begin() {
  asio::post(strand_, [self = shared_from_this()] {
    for (const std::unique_ptr<Link>& link : self->links_) {
      self->Spawn(self->RunLink(*link));
    }
    self->Spawn(self->RunTicker());
  });
}

bool ClientCore::End(std::chrono::milliseconds patience) {
  asio::post(strand_, [self = shared_from_this()] {
    if (self->closing_.exchange(true)) return;
    for (const std::unique_ptr<Link>& link : self->links_) {
      link->rest.cancel();
      if (link->channel == nullptr) {
        link->cancel.cancel();
        continue;
      }
      link->channel->Send(self->Header(FrameType::kLeave));
      link->channel->CloseAfterSending({ErrorCode::kIo, "the worker ends"});
    }
    self->tick_.cancel();
    self->round_.cancel();
  });
  {
    std::unique_lock lock(mutex_);
    const auto all_ended = [this] {
      return closing_.load() && coroutines_.load() == 0;
    };
    if (changed_.wait_for(lock, patience, all_ended)) return true;
  }
  asio::post(strand_, [self = shared_from_this()] {
    for (const std::unique_ptr<Link>& link : self->links_) {
      link->cancel.cancel();  // Closes the channel, too.
    }
  });
  return false;
}

// ---- Waiting. ---------------------------------------------------------------

void ClientCore::Notify() {
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void ClientCore::Fail(Error error) {
  options_.log.Error("on its own from here on", {{"reason", error.message}});
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.has_value()) failure_ = std::move(error);
    failed_.store(true);
  }
  changed_.notify_all();
}

std::optional<Error> ClientCore::failure() const {
  if (!failed_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<Error> ClientCore::TakeExchangeError() {
  const std::lock_guard lock(mutex_);
  return std::exchange(exchange_error_, std::nullopt);
}

void ClientCore::HearOf(uint32_t live) {
  uint32_t most = most_live();
  while (live > most && !most_live_.compare_exchange_weak(most, live)) {
  }
}

void ClientCore::SetLive(uint32_t live) {
  live_.store(live, std::memory_order_relaxed);
  HearOf(live);
}

Status ClientCore::WaitFor(const char* what, std::chrono::milliseconds patience,
                           const std::atomic<bool>& flag, bool wanted) {
  const auto begin = std::chrono::steady_clock::now();
  const auto until = begin + patience;
  const auto done = [&] { return flag.load() == wanted || failed_.load(); };
  bool interrupted = false;
  std::unique_lock lock(mutex_);
  while (!done() && !interrupted) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) break;
    changed_.wait_until(lock, std::min(until, now + kLookUp), done);
    interrupted = options_.interrupted && options_.interrupted();
  }
  if (flag.load() == wanted) return Done{};
  if (failed_.load()) return *failure_;
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  return Error{ErrorCode::kTimedOut,
               std::string(interrupted ? "interrupted after " : "waited ") +
                   std::to_string(waited.count()) + " ms for " + what + ": " +
                   trouble_};
}

Status ClientCore::WaitUntilSynced(std::chrono::milliseconds patience) {
  return WaitFor("the aggregator's weights", patience, synced_, true);
}

Status ClientCore::WaitUntilIdle(std::chrono::milliseconds patience) {
  return WaitFor("the exchange under way", patience, busy_, false);
}

// Runs `work` on the strand and waits for it.
template <typename Work>
Status ClientCore::RunAndWait(Work work) {
  const auto done = std::make_shared<std::promise<Status>>();
  asio::post(strand_, [self = shared_from_this(), work, done] {
    done->set_value(work());
  });
  std::future<Status> result = done->get_future();
  if (result.wait_for(options_.patience) != std::future_status::ready) {
    return Error{ErrorCode::kTimedOut, "comm's thread does not answer"};
  }
  return result.get();
}

Status ClientCore::StageView() {
  return RunAndWait([this]() -> Status {
    for (uint32_t i = 0; i < lines_.size(); ++i) {
      Status status = lines_[i].worker->ReadView(Staged(i));
      if (!status.ok()) return status;
    }
    return Done{};
  });
}

void ClientCore::CutConnections() {
  (void)RunAndWait([this]() -> Status {
    for (const std::unique_ptr<Link>& link : links_) {
      if (link->channel != nullptr) {
        link->channel->Close({ErrorCode::kIo, "the connection was cut"});
      }
    }
    return Done{};
  });
}

void ClientCore::StartExchange(bool everything) {
  busy_.store(true, std::memory_order_relaxed);
  asio::post(strand_, [self = shared_from_this(), everything] {
    if (everything) self->SendEverything();
    self->Spawn(self->RunExchange());
  });
}

// ---- Questions. -------------------------------------------------------------

void ClientCore::AnswerOne(FrameType type) {
  if (answered_.load() || question_.type != type || --question_.open > 0) {
    return;
  }
  answered_.store(true);
  Notify();
}

// To be asked again.
void ClientCore::BreakQuestion(const std::string& why) {
  if (answered_.load()) return;
  question_.error = {ErrorCode::kIo, why};
  answered_.store(true);
  Notify();
}

void ClientCore::SendQuestion(FrameType type) {
  std::string missing;
  for (const std::unique_ptr<Link>& link : links_) {
    if (link->channel == nullptr || link->channel->closed()) {
      missing = link->endpoint.ToString();
    }
  }
  if (!missing.empty()) {
    BreakQuestion("the aggregator at " + missing + " is not connected");
    return;
  }
  if (type == FrameType::kStatus) {
    question_.open = 1;
    links_[0]->channel->Send(Header(FrameType::kStatus));
    return;
  }
  question_.open = lines_.size();
  for (uint32_t i = 0; i < lines_.size(); ++i) {
    ShardLine& line = lines_[i];
    if (type == FrameType::kPull) {
      if (line.phase == Phase::kReady) SendPull(line, i);
    } else {
      ChannelOf(line)->Send(Header(type, i));
    }
  }
}

Result<ClientCore::Question> ClientCore::AskOnce(FrameType type) {
  question_ = {};
  question_.type = type;
  answered_.store(false);
  asio::post(strand_,
             [self = shared_from_this(), type] { self->SendQuestion(type); });
  const Status status =
      WaitFor("the aggregator's answer", options_.patience, answered_, true);
  if (!status.ok()) {
    // The strand still owns the question: take it back there.
    (void)RunAndWait([this]() -> Status {
      answered_.store(true);
      return Done{};
    });
    return status.error();
  }
  if (question_.error.has_value()) return *question_.error;
  return question_;
}

Result<ClientCore::Question> ClientCore::Ask(FrameType type) {
  const auto until = std::chrono::steady_clock::now() + options_.patience;
  while (true) {
    Status status = WaitUntilIdle(options_.patience);
    if (!status.ok()) return status.error();
    Result<Question> answer = AskOnce(type);
    const bool interrupted = options_.interrupted && options_.interrupted();
    if (answer.ok() || answer.error().code != ErrorCode::kIo || interrupted ||
        std::chrono::steady_clock::now() > until) {
      return answer;
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

Status ClientCore::PullAll() {
  const Result<Question> answer = Ask(FrameType::kPull);
  if (!answer.ok()) return answer.error();
  return Done{};
}

Result<bool> ClientCore::CompareDigests() {
  const Result<Question> answer = Ask(FrameType::kDigest);
  if (!answer.ok()) return answer.error();
  return answer->agree;
}

Result<std::string> ClientCore::AskStatus() {
  Result<Question> answer = Ask(FrameType::kStatus);
  if (!answer.ok()) return answer.error();
  return std::move(answer->text);
}

}  // namespace tensorlightning
