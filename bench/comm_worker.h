// Workers of the benchmark: a model of one tensor that moves at random, and the
// client that exchanges it.
#ifndef TENSORLIGHTNING_BENCH_COMM_WORKER_H_
#define TENSORLIGHTNING_BENCH_COMM_WORKER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/client/elastic_client.h"
#include "comm/transport/thread_pool.h"

namespace tensorlightning::bench {

class BenchWorker {
 public:
  static Result<std::unique_ptr<BenchWorker>> Start(ClientOptions options,
                                                    size_t entries);
  // The tensors point into the model.
  BenchWorker(const BenchWorker&) = delete;
  BenchWorker& operator=(const BenchWorker&) = delete;

  // Moves the model, as steps of training would.
  void Train();
  // A whole exchange: begins one, and waits until its answer is applied.
  Status Exchange();

  ElasticClient& client() { return *client_; }
  const ClientCounts& counts() const { return client_->counts(); }
  std::span<float> model() { return model_; }
  Tensors tensors() const { return tensors_; }

 private:
  explicit BenchWorker(size_t entries);

  std::vector<float> model_;
  std::array<std::span<float>, 1> tensors_;
  std::vector<float> noise_;
  size_t steps_ = 0;
  std::unique_ptr<ElasticClient> client_;
};

// Two that share a thread. They take turns: of one alone, nothing new would
// ever come back to it.
using Pair = std::array<std::unique_ptr<BenchWorker>, 2>;
Result<Pair> StartPair(ClientOptions options, size_t entries);

}  // namespace tensorlightning::bench

#endif  // TENSORLIGHTNING_BENCH_COMM_WORKER_H_
