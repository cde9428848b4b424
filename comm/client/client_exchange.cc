// ClientCore's exchanges.

#include <algorithm>
#include <utility>

#include "comm/client/client_core.h"
#include "comm/crc32c.h"
#include "kernels/finite.h"

namespace tensorlightning {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kRelaxed = std::memory_order_relaxed;
// How often to look whether a round can begin that has to wait.
constexpr std::chrono::milliseconds kRoundCheck{5};

}  // namespace

std::span<float> ClientCore::Staged(uint32_t shard) {
  const Shard& place = map_.shards()[shard];
  return std::span(staging_).subspan(place.begin, place.entries);
}

// ---- Pushing. ---------------------------------------------------------------

Awaitable<void> ClientCore::RunExchange() {
  computing_ = true;
  exchange_start_ = Clock::now();
  steps_at_start_ = counts_.steps.load(kRelaxed);
  if (options_.policy.rule == Rule::kGradientSync) {
    const bool go = co_await PrepareRound();
    if (!go) {
      computing_ = false;
      busy_.store(false, std::memory_order_release);
      Notify();
      co_return;
    }
  }
  for (uint32_t i = 0; i < lines_.size(); ++i) {
    // Replies to earlier shards, and whatever else has come, in between.
    if (i > 0) co_await asio::post(strand_, asio::use_awaitable);
    ShardLine& line = lines_[i];
    if (line.phase != Phase::kReady) {
      (void)line.worker->Postpone(Staged(i));
      continue;
    }
    const Result<Emitted> emitted =
        line.worker->Step(Staged(i), company(), push_);
    if (!emitted.ok()) {
      counts_.not_finite.fetch_add(1, kRelaxed);
      const std::lock_guard lock(mutex_);
      exchange_error_ = emitted.error();
      continue;
    }
    const uint64_t sequence = line.next++;
    const auto code = std::span(push_).first(emitted->bytes);
    if (options_.on_push) options_.on_push(i, sequence, code);
    Keep(line, sequence, code);
    line.phase = Phase::kPushed;
    line.in_exchange = true;
    ++waiting_;
    counts_.entries_sent.fetch_add(emitted->kept, kRelaxed);
    SendPush(line, i);
  }
  computing_ = false;
  if (options_.policy.rule == Rule::kAverage) {
    correction_.store(true, std::memory_order_release);
  }
  FinishIfDone();
}

void ClientCore::SendEverything() {
  size_t largest = push_.size();
  for (ShardLine& line : lines_) {
    line.worker->SendEverything();
    largest = std::max(largest, line.worker->MaxPushBytes());
  }
  push_.resize(largest);
}

// In a synchronous rule all shards must go round together: two workers that are
// a round apart on one shard, and not on another, would wait for each other for
// ever. So a round begins when all shards can take part, or not at all.
Awaitable<bool> ClientCore::PrepareRound() {
  const Status finite = CheckFinite(staging_, "the gradient", kUsableBits);
  if (!finite.ok()) {
    counts_.not_finite.fetch_add(1, kRelaxed);
    const std::lock_guard lock(mutex_);
    exchange_error_ = finite.error();
    co_return false;
  }
  const auto ready = [this] {
    return std::all_of(lines_.begin(), lines_.end(), [](const ShardLine& line) {
      return line.phase == Phase::kReady;
    });
  };
  while (!ready()) {
    if (closing_ || failed_) co_return false;
    SysError cancelled;
    round_.expires_after(kRoundCheck);
    co_await round_.async_wait(Into(cancelled));
  }
  co_return true;
}

// The push that this shard's round waits for was lost: what it held is owed
// again, and sent again, so that the round can end.
void ClientCore::PushAgain(ShardLine& line, uint32_t shard) {
  const Result<Emitted> emitted = line.worker->Step({}, company(), push_);
  if (!emitted.ok()) {
    Answered(line);
    return;
  }
  const uint64_t sequence = line.next++;
  const auto code = std::span(push_).first(emitted->bytes);
  if (options_.on_push) options_.on_push(shard, sequence, code);
  Keep(line, sequence, code);
  line.phase = Phase::kPushed;
  SendPush(line, shard);
}

void ClientCore::SendPush(ShardLine& line, uint32_t shard) {
  Channel* const channel = ChannelOf(line);
  if (channel == nullptr) return;  // Later, on the next connection.
  const Kept& push = line.kept.back();
  line.sending = true;
  line.queued = Clock::now();
  channel->SendBorrowed(Header(FrameType::kPush, shard, push.sequence),
                        push.code);
}

void ClientCore::Keep(ShardLine& line, uint64_t sequence,
                      std::span<const std::byte> code) {
  Bytes memory;
  if (!line.spare.empty()) {
    memory = std::move(line.spare.back());
    line.spare.pop_back();
  }
  // A little more: the next code may be a little longer.
  if (memory.capacity() < code.size()) memory.reserve(code.size() * 9 / 8);
  memory.assign(code.begin(), code.end());
  kept_bytes_ += memory.size();
  line.kept.push_back({sequence, std::move(memory)});
  while (kept_bytes_ > options_.max_kept_bytes && line.kept.size() > 1) {
    counts_.forgotten.fetch_add(1, kRelaxed);
    Recycle(line, line.kept.front());
    line.kept.pop_front();
  }
}

void ClientCore::Recycle(ShardLine& line, Kept& kept) {
  kept_bytes_ -= kept.code.size();
  if (line.spare.size() < 2) line.spare.push_back(std::move(kept.code));
}

void ClientCore::ForgetUpTo(ShardLine& line, uint64_t durable) {
  while (!line.kept.empty() && line.kept.front().sequence <= durable) {
    Recycle(line, line.kept.front());
    line.kept.pop_front();
  }
}

void ClientCore::FinishIfDone() {
  if (computing_ || waiting_ > 0 || !busy_.load(kRelaxed)) return;
  if (options_.policy.rule != Rule::kAverage) {
    for (uint32_t i = 0; i < lines_.size(); ++i) {
      lines_[i].worker->Deliver(Staged(i), lines_[i].reply_live);
    }
    correction_.store(true, std::memory_order_release);
  }
  counts_.exchanges.fetch_add(1, kRelaxed);
  counts_.dense_bytes.fetch_add(2 * sizeof(float) * map_.entries(), kRelaxed);
  counts_.steps_behind.fetch_add(counts_.steps.load(kRelaxed) - steps_at_start_,
                                 kRelaxed);
  counts_.latency.Add(Clock::now() - exchange_start_);
  busy_.store(false, std::memory_order_release);
  Notify();
}

void ClientCore::Answered(ShardLine& line) {
  if (!line.in_exchange) return;
  line.in_exchange = false;
  --waiting_;
  FinishIfDone();
}

Status ClientCore::OnReply(uint32_t shard, uint64_t sequence,
                           std::span<const std::byte> payload) {
  ShardLine& line = lines_[shard];
  const Result<Standing> standing = Standing::Parse(payload);
  if (!standing.ok()) return standing.error();
  // A ghost: the answer to a push that was answered on another connection.
  if (line.phase != Phase::kPushed || sequence + 1 != line.next) return Done{};
  const Result<Message> reply = Message::Parse(
      payload.subspan(Standing::kBytes), map_.shards()[shard].entries);
  const Status applied =
      reply.ok() ? line.worker->ApplyReply(*reply) : Status(reply.error());
  if (!applied.ok()) {
    options_.log.Warning(
        "unusable reply",
        {{"shard", shard}, {"reason", applied.error().message}});
    SendPull(line, shard);
    return Done{};
  }
  counts_.round_trip.Add(Clock::now() - line.queued);
  counts_.pushes.fetch_add(1, kRelaxed);
  counts_.entries_received.fetch_add(reply->kept(), kRelaxed);
  if (standing->version > line.version + 1) {
    counts_.staleness.fetch_add(standing->version - line.version - 1, kRelaxed);
  }
  line.version = standing->version;
  line.reply_live = standing->live;
  SetLive(standing->live);
  ForgetUpTo(line, standing->durable);
  line.phase = Phase::kReady;
  Answered(line);
  return Done{};
}

void ClientCore::OnRefused(uint32_t shard, uint64_t sequence,
                           std::span<const std::byte> payload) {
  ShardLine& line = lines_[shard];
  if (line.phase != Phase::kPushed || sequence + 1 != line.next) return;
  const Result<Complaint> complaint = Complaint::Parse(payload);
  const std::string why =
      complaint.ok() ? complaint->message : "it did not say why";
  options_.log.Warning("push refused", {{"shard", shard}, {"reason", why}});
  counts_.refused.fetch_add(1, kRelaxed);
  {
    const std::lock_guard lock(mutex_);
    exchange_error_ = {ErrorCode::kNotFinite,
                       "the aggregator refused a push: " + why};
  }
  // It is not to be owed again; the view, which has it, is taken anew.
  Recycle(line, line.kept.back());
  line.kept.pop_back();
  SendPull(line, shard);
}

// ---- Pulling. ---------------------------------------------------------------

void ClientCore::SendPull(ShardLine& line, uint32_t shard) {
  line.phase = Phase::kPulling;
  Channel* const channel = ChannelOf(line);
  if (channel != nullptr) channel->Send(Header(FrameType::kPull, shard));
}

// The aggregator has no weights for this shard.
void ClientCore::BringWeights(ShardLine& line, uint32_t shard) {
  line.phase = Phase::kUnsynced;
  Channel* const channel = ChannelOf(line);
  if (rank_ != 0 || channel == nullptr) return;  // The ticker asks again.
  const Shard& place = map_.shards()[shard];
  Bytes floats(place.entries * sizeof(float));
  std::vector<float> weights(place.entries);
  if (line.loaded) {
    // It had them once, and has lost them: what this worker knows of the
    // centre is the best there is, and has all of its own pushes in it.
    (void)line.worker->ReadView(weights);
    for (Kept& kept : line.kept) Recycle(line, kept);
    line.kept.clear();
  } else {
    const auto from = weights_.begin() + static_cast<ptrdiff_t>(place.begin);
    std::copy_n(from, place.entries, weights.begin());
  }
  std::copy_n(reinterpret_cast<const std::byte*>(weights.data()), floats.size(),
              floats.begin());
  channel->Send(Header(FrameType::kInit, shard), std::move(floats));
  SendPull(line, shard);
}

void ClientCore::OweAgain(ShardLine& line, uint32_t shard, uint64_t applied) {
  while (!line.kept.empty() && line.kept.back().sequence > applied) {
    Kept& lost = line.kept.back();
    const Result<Message> push =
        Message::Parse(lost.code, map_.shards()[shard].entries);
    if (push.ok()) (void)line.worker->Owe(*push);
    counts_.owed_again.fetch_add(1, kRelaxed);
    Recycle(line, lost);
    line.kept.pop_back();
  }
}

Status ClientCore::OnState(uint32_t shard, uint64_t applied,
                           std::span<const std::byte> payload) {
  ShardLine& line = lines_[shard];
  const Result<Standing> standing = Standing::Parse(payload);
  if (!standing.ok()) return standing.error();
  const size_t entries = map_.shards()[shard].entries;
  if (payload.size() != Standing::kBytes + entries * sizeof(float)) {
    return Error{ErrorCode::kCorrupt, "a state of the wrong size"};
  }
  if (line.phase != Phase::kPulling) return Done{};  // Asked for twice.
  const std::span<const std::byte> bytes = payload.subspan(Standing::kBytes);
  Status loaded = line.worker->Load(
      {reinterpret_cast<const float*>(bytes.data()), entries});
  if (!loaded.ok()) return loaded;
  if (line.loaded) counts_.resyncs.fetch_add(1, kRelaxed);
  const bool lost = line.in_exchange && line.next > applied + 1;
  OweAgain(line, shard, applied);
  ForgetUpTo(line, standing->durable);
  line.next = applied + 1;
  line.version = standing->version;
  line.phase = Phase::kReady;
  SetLive(standing->live);
  if (!line.loaded) {
    line.loaded = true;
    first_version_.store(std::max(first_version_.load(), standing->version));
    if (--unsynced_ == 0) {
      weights_ = {};
      synced_.store(true);
      Notify();
    }
  }
  if (lost && options_.policy.rule == Rule::kGradientSync) {
    PushAgain(line, shard);
  } else {
    Answered(line);
  }
  AnswerOne(FrameType::kPull);
  return Done{};
}

Status ClientCore::OnDigest(uint32_t shard, uint64_t applied,
                            std::span<const std::byte> payload) {
  const Result<Digest> digest = Digest::Parse(payload);
  if (!digest.ok()) return digest.error();
  if (answered_.load()) return Done{};
  const ShardLine& line = lines_[shard];
  digest_view_.resize(map_.shards()[shard].entries);
  (void)line.worker->ReadView(digest_view_);
  const uint32_t here = Crc32c(std::as_bytes(std::span(digest_view_)));
  if (here != digest->view || applied + 1 != line.next) question_.agree = false;
  AnswerOne(FrameType::kDigest);
  return Done{};
}

}  // namespace tensorlightning
