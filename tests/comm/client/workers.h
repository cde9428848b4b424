// Workers with real clients, and an aggregator, in one process.
#ifndef TENSORLIGHTNING_TESTS_COMM_CLIENT_WORKERS_H_
#define TENSORLIGHTNING_TESTS_COMM_CLIENT_WORKERS_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/aggregator/aggregator.h"
#include "comm/client/elastic_client.h"

namespace tensorlightning::testing {

// Generous: these machines are slow at times, and sanitizers slower.
inline constexpr std::chrono::milliseconds kPatience{60'000};

inline Layout SmallLayout() {
  return *Layout::Make({{"dense/kernel", {300, 1000}},  // Two sparse shards,
                        {"dense/bias", {100}}});        // and a dense one.
}

inline std::unique_ptr<Aggregator> StartAggregator(
    AggregatorOptions options = {}) {
  if (options.listen == AggregatorOptions().listen) {
    options.listen = {{"127.0.0.1", 0, ""}};
  }
  options.log = Log(2, LogLevel::kWarning);
  Result<std::unique_ptr<Aggregator>> started =
      Aggregator::Start(std::move(options));
  EXPECT_TRUE(started.ok()) << started.error().message;
  return std::move(*started);
}

inline ClientOptions OptionsFor(const Aggregator& aggregator) {
  ClientOptions options;
  options.aggregators = aggregator.endpoints();
  options.patience = kPatience;
  options.log = Log(2, LogLevel::kNone);
  return options;
}

// A folder in /tmp: the path of a Unix socket must be short.
inline std::string MakeFolder() {
  std::string name = "/tmp/tl-test-XXXXXX";
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  return name;
}

class Worker {
 public:
  explicit Worker(uint32_t seed, Layout layout = SmallLayout())
      : layout_(std::move(layout)), random_(seed) {
    for (const Tensor& tensor : layout_.tensors()) {
      values_.emplace_back(tensor.entries());
    }
    for (std::vector<float>& tensor : values_) tensors_.emplace_back(tensor);
    Move(1.0f);
  }

  Tensors tensors() const { return tensors_; }
  std::vector<std::vector<float>>& values() { return values_; }
  ElasticClient& client() { return *client_; }

  Status Start(ClientOptions options) {
    Result<std::unique_ptr<ElasticClient>> started =
        ElasticClient::Start(std::move(options), layout_, tensors_);
    if (!started.ok()) return started.error();
    client_ = std::move(*started);
    return Done{};
  }
  void Crash() { client_.reset(); }

  // A step of training: every value moves a little.
  void Move(float by) {
    std::uniform_real_distribution<float> step(-by, by);
    for (std::vector<float>& tensor : values_) {
      for (float& value : tensor) value += step(random_);
    }
  }

  // A whole exchange, its correction included.
  void Exchange() {
    const Result<bool> started = client_->Exchange(tensors_);
    ASSERT_TRUE(started.ok()) << started.error().message;
    ASSERT_TRUE(*started);
    const Status done = client_->Wait(kPatience);
    ASSERT_TRUE(done.ok()) << done.error().message;
    ASSERT_TRUE(client_->Collect(tensors_).ok());
  }

  // Until the worker has heard that there are as many.
  void WaitForLive(uint32_t live) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (client_->live() != live) {
      ASSERT_LT(std::chrono::steady_clock::now(), until);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  void ExpectViewsAgree() {
    const Result<bool> agree = client_->ViewsAgree();
    ASSERT_TRUE(agree.ok()) << agree.error().message;
    EXPECT_TRUE(*agree);
  }

 private:
  Layout layout_;
  std::mt19937 random_;
  std::vector<std::vector<float>> values_;
  std::vector<std::span<float>> tensors_;
  std::unique_ptr<ElasticClient> client_;
};

}  // namespace tensorlightning::testing

#endif  // TENSORLIGHTNING_TESTS_COMM_CLIENT_WORKERS_H_
