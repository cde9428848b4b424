#include "comm/aggregator/centre_shard.h"

#include <algorithm>
#include <string>
#include <utility>

#include "comm/crc32c.h"
#include "comm/transport/thread_memory.h"
#include "kernels/decode.h"
#include "kernels/finite.h"

namespace tensorlightning {
namespace {

uint32_t CrcOf(const std::vector<float>& values) {
  return Crc32c(std::as_bytes(std::span(values)));
}

}  // namespace

CentreShard::CentreShard(uint32_t index, const Shard& shard, Rule rule,
                         bool durable_by_snapshot)
    : index_(index),
      dense_(shard.dense),
      rule_(rule),
      durable_by_snapshot_(durable_by_snapshot),
      centre_(shard.entries) {}

Status CentreShard::Restore(const ShardSnapshot& snapshot) {
  Status status = Init(snapshot.centre);
  if (!status.ok()) return status;
  version_ = snapshot.version;
  for (const AppliedPush& applied : snapshot.applied) {
    if (applied.rank >= kMaxRanks) {
      return Error{ErrorCode::kCorrupt, "the snapshot speaks of rank " +
                                            std::to_string(applied.rank)};
    }
    Slot& slot = SlotOf(applied.rank);
    slot.applied = slot.durable = applied.sequence;
  }
  return Done{};
}

Status CentreShard::Init(std::span<const float> weights) {
  if (has_centre_) return Done{};
  if (weights.size() != centre_.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 "the first weights of shard " + std::to_string(index_) +
                     " are " + std::to_string(weights.size()) + ", not " +
                     std::to_string(centre_.size())};
  }
  Status status = CheckFinite(weights, "the first weights", kUsableBits);
  if (!status.ok()) return status;
  std::copy(weights.begin(), weights.end(), centre_.begin());
  has_centre_ = true;
  return status;
}

CentreShard::Slot& CentreShard::SlotOf(uint32_t rank) {
  if (slots_.size() <= rank) slots_.resize(rank + 1);
  if (slots_[rank] == nullptr) slots_[rank] = std::make_unique<Slot>();
  return *slots_[rank];
}

const CentreShard::Slot* CentreShard::Find(uint32_t rank) const {
  return rank < slots_.size() ? slots_[rank].get() : nullptr;
}

Standing CentreShard::StandingOf(uint32_t rank) const {
  const Slot* slot = Find(rank);
  if (slot == nullptr) return {0, 0, version_};
  return {0, durable_by_snapshot_ ? slot->durable : slot->applied, version_};
}

uint64_t CentreShard::AppliedOf(uint32_t rank) const {
  const Slot* slot = Find(rank);
  return slot == nullptr ? 0 : slot->applied;
}

std::optional<CentreShard::View> CentreShard::Pull(uint32_t rank,
                                                   const Compression& reply) {
  if (!has_centre_) return std::nullopt;
  Slot& slot = SlotOf(rank);
  slot.view = centre_;
  slot.compression = dense_ ? DenseCompression(reply.values) : reply;
  // The answer to its last push, if it waits for one, is in the view now; a
  // reply to the view before would not fit this one.
  slot.waiting = false;
  slot.reply.clear();
  return View{StandingOf(rank), slot.applied, slot.view};
}

Status CentreShard::Apply(std::span<const std::byte> code, Slot& slot,
                          size_t& entries) {
  const Result<Message> push = Message::Parse(code, centre_.size());
  if (!push.ok()) return push.error();
  Status status = CheckNotHuge(*push, "the push");
  if (!status.ok()) return status;
  if (rule_ == Rule::kAverage) {
    status = ApplyPush(*push, centre_, slot.view);
  } else {
    // Not into the view: the reply is to hold the worker's own part too.
    DecodeAdd(*push, centre_, 1.0f);
  }
  entries = push->kept();
  return status;
}

Status CentreShard::MakeReplyFor(Slot& slot) {
  const std::span<std::byte> scratch =
      ThreadScratch(slot.compression.MaxBytes(centre_.size()));
  const Result<Emitted> emitted = MakeReply(
      centre_, slot.view, slot.compression, ThreadWorkspace(), scratch);
  if (!emitted.ok()) return emitted.error();
  const std::span<const std::byte> code = scratch.first(emitted->bytes);
  // A little more: the next one may be a little longer.
  if (slot.reply.capacity() < code.size()) {
    slot.reply.reserve(code.size() * 9 / 8);
  }
  slot.reply.assign(code.begin(), code.end());
  slot.reply_entries = emitted->kept;
  return Done{};
}

CentreShard::Pushed CentreShard::Push(uint32_t rank, uint64_t sequence,
                                      std::span<const std::byte> code) {
  Slot& slot = SlotOf(rank);
  if (slot.view.empty()) return {Verdict::kResync, {}};
  if (sequence < slot.applied) return {Verdict::kIgnore, {}};
  if (sequence == slot.applied && (slot.waiting || !slot.reply.empty())) {
    return {slot.waiting ? Verdict::kWait : Verdict::kReply, {}};
  }
  if (sequence != slot.applied + 1 || slot.waiting) {
    return {Verdict::kResync, {}};
  }

  size_t entries = 0;
  const Status status = Apply(code, slot, entries);
  if (!status.ok()) return {Verdict::kRefused, status.error()};
  slot.applied = sequence;
  slot.reply.clear();  // It answers the push before.
  ++version_;
  if (rule_ == Rule::kGradientSync) {
    slot.waiting = true;
    return {Verdict::kWait, {}, true, entries};
  }
  // Can only fail on a centre that is not finite, which Apply() prevents.
  if (!MakeReplyFor(slot).ok()) return {Verdict::kResync, {}, true, entries};
  return {Verdict::kReply, {}, true, entries};
}

CentreShard::Reply CentreShard::LastReply(uint32_t rank) const {
  const Slot& slot = *slots_[rank];
  Standing standing = StandingOf(rank);
  standing.live = slot.reply_live;
  return {standing, slot.applied, slot.reply, slot.reply_entries};
}

std::vector<uint32_t> CentreShard::TakeReady() {
  std::vector<uint32_t> ready;
  if (rule_ != Rule::kGradientSync) return ready;
  for (uint32_t rank = 0; rank < slots_.size(); ++rank) {
    const Slot* slot = slots_[rank].get();
    if (slot == nullptr || slot->view.empty()) continue;
    if (!slot->waiting) return {};  // The round is not complete.
    ready.push_back(rank);
  }
  for (const uint32_t rank : ready) {
    Slot& slot = *slots_[rank];
    slot.waiting = false;
    if (!MakeReplyFor(slot).ok()) slot.reply.clear();
    slot.reply_live = static_cast<uint32_t>(ready.size());
  }
  return ready;
}

void CentreShard::Drop(uint32_t rank) {
  if (rank >= slots_.size() || slots_[rank] == nullptr) return;
  Slot& slot = *slots_[rank];
  slot.view = {};
  slot.reply = {};
  slot.waiting = false;
}

std::optional<Digest> CentreShard::DigestFor(uint32_t rank) const {
  const Slot* slot = Find(rank);
  if (slot == nullptr || slot->view.empty()) return std::nullopt;
  return Digest{CrcOf(slot->view), CrcOf(centre_), version_};
}

void CentreShard::CopyTo(ShardSnapshot& snapshot) const {
  snapshot.shard = index_;
  snapshot.version = version_;
  snapshot.centre = centre_;
  snapshot.applied.clear();
  for (uint32_t rank = 0; rank < slots_.size(); ++rank) {
    if (slots_[rank] != nullptr && slots_[rank]->applied > 0) {
      snapshot.applied.push_back({rank, slots_[rank]->applied});
    }
  }
}

void CentreShard::MarkDurable(std::span<const AppliedPush> applied) {
  for (const AppliedPush& push : applied) {
    Slot& slot = SlotOf(push.rank);
    slot.durable = std::max(slot.durable, push.sequence);
  }
}

}  // namespace tensorlightning
