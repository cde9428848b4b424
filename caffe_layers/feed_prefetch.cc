#include "caffe_layers/feed_prefetch.h"

#include <chrono>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "caffe_layers/interrupts.h"

namespace tensorlightning {
namespace {

// Whoever pressed Ctrl-C may have wanted Caffe to end after this iteration.
constexpr std::chrono::milliseconds kGrace{1000};
constexpr std::chrono::milliseconds kSlice{100};

size_t ValuesOf(const FeedShape& shape) {
  return std::accumulate(shape.begin(), shape.end(), size_t{1},
                         std::multiplies<>());
}

FeedBatch Empty(const FeedPlan& plan) {
  FeedBatch batch;
  for (const FeedShape& shape : plan.shapes) {
    batch.tops.emplace_back(plan.batch * ValuesOf(shape));
  }
  return batch;
}

}  // namespace

Result<std::unique_ptr<FeedPrefetch>> FeedPrefetch::Start(
    std::unique_ptr<FeedSource> source, FeedPlan plan) {
  Result<FeedReader> reader = FeedReader::Open(*source, plan.shapes);
  if (!reader.ok()) return reader.error();
  return std::unique_ptr<FeedPrefetch>(
      new FeedPrefetch(std::move(source), std::move(*reader), std::move(plan)));
}

FeedPrefetch::FeedPrefetch(std::unique_ptr<FeedSource> source,
                           FeedReader reader, FeedPlan plan)
    : source_(std::move(source)),
      reader_(std::move(reader)),
      plan_(std::move(plan)),
      current_(Empty(plan_)) {
  for (size_t i = 0; i < plan_.ahead; ++i) empty_.push_back(Empty(plan_));
  thread_ = std::thread([this] { Run(); });
}

FeedPrefetch::~FeedPrefetch() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  source_->Shut();
  thread_.join();
}

Result<const FeedBatch*> FeedPrefetch::Next() {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return !full_.empty() || error_.has_value(); };
  if (!ready()) {
    const InterruptWatch watch;
    std::chrono::milliseconds since{0};
    while (!changed_.wait_for(lock, kSlice, ready)) {
      if (watch.pressed()) since += kSlice;
      if (since < kGrace) continue;
      return Error{ErrorCode::kTimedOut,
                   "interrupted while the feeder sent nothing"};
    }
  }
  if (full_.empty()) return *error_;
  empty_.push_back(std::exchange(current_, std::move(full_.front())));
  full_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return &current_;
}

void FeedPrefetch::Run() {
  while (true) {
    FeedBatch batch;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopped_ || !empty_.empty(); });
      if (stopped_) return;
      batch = std::move(empty_.front());
      empty_.pop_front();
    }
    const Status status = Fill(batch);
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      full_.push_back(std::move(batch));
    } else {
      error_ = status.error();
    }
    changed_.notify_all();
    if (!status.ok()) return;
  }
}

Status FeedPrefetch::Fill(FeedBatch& batch) {
  std::vector<std::span<float>> record(batch.tops.size());
  for (size_t filled = 0; filled < plan_.batch;) {
    for (size_t top = 0; top < record.size(); ++top) {
      const size_t values = batch.tops[top].size() / plan_.batch;
      record[top] = std::span(batch.tops[top]).subspan(filled * values, values);
    }
    const Result<FeedReader::Item> item = reader_.Next(record);
    if (!item.ok()) return item.error();
    if (*item == FeedReader::Item::kEndOfData) {
      return Error{ErrorCode::kRefused,
                   "the feeder has ended its data after " +
                       std::to_string(reader_.records()) + " records, " +
                       std::to_string(filled) +
                       " of which do not fill a batch of " +
                       std::to_string(plan_.batch) +
                       ", and training goes on: feed more, or lower max_iter"};
    }
    if (*item == FeedReader::Item::kRecord) {
      batch.epochs = reader_.epochs();
      ++filled;
    }
  }
  return Done{};
}

}  // namespace tensorlightning
