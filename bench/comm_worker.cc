#include "bench/comm_worker.h"

#include <chrono>
#include <utility>

#include "bench/data.h"

namespace tensorlightning::bench {
namespace {

constexpr std::chrono::seconds kPatience{60};

}  // namespace

BenchWorker::BenchWorker(size_t entries)
    : model_(entries), tensors_{model_}, noise_(Normals(entries + kShifts)) {}

Result<std::unique_ptr<BenchWorker>> BenchWorker::Start(ClientOptions options,
                                                        size_t entries) {
  const Result<Layout> layout = Layout::Make({{"model", {entries}}});
  if (!layout.ok()) return layout.error();
  std::unique_ptr<BenchWorker> worker(new BenchWorker(entries));
  Result<std::unique_ptr<ElasticClient>> client =
      ElasticClient::Start(std::move(options), *layout, worker->tensors_);
  if (!client.ok()) return client.error();
  worker->client_ = std::move(*client);
  return worker;
}

void BenchWorker::Train() {
  // No two workers move alike.
  bench::Train(model_, noise_, ++steps_ + kShifts / 2 * client_->rank());
}

Status BenchWorker::Exchange() {
  const Result<bool> begun = client_->Exchange(tensors_);
  if (!begun.ok()) return begun.error();
  if (!*begun) {
    return Error{ErrorCode::kIo, "another exchange is still under way"};
  }
  return client_->Wait(kPatience);
}

Result<Pair> StartPair(ClientOptions options, size_t entries) {
  options.pool = std::make_shared<ThreadPool>(1);
  Pair pair;
  for (std::unique_ptr<BenchWorker>& worker : pair) {
    Result<std::unique_ptr<BenchWorker>> started =
        BenchWorker::Start(options, entries);
    if (!started.ok()) return started.error();
    worker = std::move(*started);
  }
  return pair;
}

}  // namespace tensorlightning::bench
