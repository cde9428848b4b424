#include "comm/tools/tl_load_worker.h"

#include <algorithm>
#include <utility>

namespace tensorlightning {

LoadWorker::LoadWorker(const LoadCommon& common, uint32_t index)
    : common_(common),
      index_(index),
      values_(common.load.layout.entries()),
      random_(
          SmallRandom(static_cast<uint64_t>(common.load.settings.seed)).Next() +
          index),
      attempt_(common.first_attempt),
      rank_(
          common.load.settings.rank_base < 0
              ? kAnyRank
              : static_cast<int32_t>(common.load.settings.rank_base + index)) {
  size_t begin = 0;
  for (const Tensor& tensor : common.load.layout.tensors()) {
    tensors_.push_back(std::span(values_).subspan(begin, tensor.entries()));
    begin += tensor.entries();
  }
  if (!common.load.averages()) return;
  const auto moves = common.table.moves();
  for (size_t i = 0; i < values_.size(); ++i) {
    values_[i] = moves[i % moves.size()];
  }
}

// ---- The driver's. ----------------------------------------------------------

bool LoadWorker::Ready() const {
  const bool goes_on =
      common_.load.averages() && common_.load.settings.step.count() > 0;
  return goes_on || !client_->busy() || client_->failure().has_value();
}

// The mean of the last gradients, which a real worker would apply.
Status LoadWorker::TakeMean() {
  if (std::optional<Error> failure = client_->failure()) return *failure;
  const Result<bool> collected = client_->Collect(tensors_);
  if (!collected.ok()) return collected.error();
  if (*collected) std::fill(values_.begin(), values_.end(), 0.0f);
  return Done{};
}

Status LoadWorker::Step() {
  if (!common_.load.averages()) {
    Status taken = TakeMean();
    if (!taken.ok()) return taken;
  }
  Walk(common_.table, random_, common_.load.settings.moves, values_);
  ++steps_;
  const Result<bool> stepped = client_->Step(tensors_);
  if (!stepped.ok()) return stepped.error();
  return Done{};
}

Status LoadWorker::ExchangeRest() {
  Status taken = TakeMean();
  if (!taken.ok()) return taken;
  drained_before_ = Drained();
  rest_begun_ = true;
  entries_before_ = client_->counts().entries_sent;
  pushes_before_ = client_->counts().pushes;
  const Result<bool> started = client_->Exchange(tensors_);
  if (!started.ok()) return started.error();
  return Done{};
}

bool LoadWorker::Drained() const {
  if (!rest_begun_ || client_->busy()) return drained_before_;
  const ClientCounts& counts = client_->counts();
  return counts.entries_sent == entries_before_ &&
         counts.pushes == pushes_before_ + common_.shards;
}

// ---- Helpers'. --------------------------------------------------------------

Status LoadWorker::Join() {
  ClientOptions options = common_.load.client;
  options.rank = rank_;
  options.attempt = attempt_++;
  options.schedule = common_.load.MakeSchedule();
  options.pool = common_.pool;
  if (common_.ledger != nullptr) {
    options.on_push = [this](uint32_t shard, uint64_t sequence,
                             std::span<const std::byte> code) {
      const auto rank = static_cast<uint32_t>(rank_.load());
      common_.ledger->Add(rank, shard, sequence, code);
    };
  }
  Result<std::unique_ptr<ElasticClient>> client =
      ElasticClient::Start(std::move(options), common_.load.layout, tensors_);
  if (!client.ok()) return client.error();
  if (common_.load.averages()) {
    // As after a while of training, no entry is where the centre has it.
    Sweep(common_.table, random_, values_);
  } else {
    std::fill(values_.begin(), values_.end(), 0.0f);
  }
  rest_begun_ = drained_before_ = false;
  rank_ = static_cast<int32_t>((*client)->rank());
  const ClientCounts& counts = (*client)->counts();
  joining_bytes_ += counts.bytes_sent + counts.bytes_received;
  const std::lock_guard lock(mutex_);
  client_ = std::move(*client);
  return Done{};
}

void LoadWorker::Crash() {
  // With its connections cut, it can't take leave.
  client_->CutConnections();
  Retire();
}

Status LoadWorker::WaitUntilIdle() {
  return client_->Wait(common_.load.settings.patience);
}

Result<std::span<const float>> LoadWorker::Centre() {
  // Even if it has met nobody yet: not its own model, which then counts as one.
  client_->MeetOthers();
  const Status pulled = client_->Pull(tensors_);
  if (!pulled.ok()) return pulled.error();
  return std::span<const float>(values_);
}

void LoadWorker::Leave() {
  if (client_ != nullptr) Retire();
}

void LoadWorker::Retire() {
  std::unique_ptr<ElasticClient> client;
  {
    const std::lock_guard lock(mutex_);
    retired_.Add(client_->counts());
    client = std::move(client_);
  }
}

// ---- Anybody's. -------------------------------------------------------------

std::string LoadWorker::Name() const {
  std::string name = "worker " + std::to_string(index_);
  if (rank_ != kAnyRank) name += " (rank " + std::to_string(rank_) + ")";
  return name;
}

void LoadWorker::AddTo(Tally& tally) const {
  const std::lock_guard lock(mutex_);
  tally.Add(retired_);
  if (client_ != nullptr) tally.Add(client_->counts());
}

uint32_t LoadWorker::live() const {
  const std::lock_guard lock(mutex_);
  return client_ == nullptr ? 0 : client_->live();
}

}  // namespace tensorlightning
