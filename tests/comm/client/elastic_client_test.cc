#include "comm/client/elastic_client.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "comm/aggregator/aggregator.h"

namespace tensorlightning {
namespace {

TEST(Smoke, Works) {
  AggregatorOptions options;
  options.listen = {{"127.0.0.1", 0, ""}};
  auto aggregator = Aggregator::Start(std::move(options));
  ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
  const Endpoint endpoint = (*aggregator)->endpoints()[0];
  const auto layout = Layout::Make({{"kernel", {700, 1000}}, {"bias", {100}}});
  ASSERT_TRUE(layout.ok());
  struct Worker {
    std::vector<float> kernel = std::vector<float>(700000);
    std::vector<float> bias = std::vector<float>(100);
    std::vector<std::span<float>> tensors{kernel, bias};
    std::unique_ptr<ElasticClient> client;
  };
  std::vector<Worker> workers(3);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (Worker& worker : workers) {
    worker.tensors = {worker.kernel, worker.bias};
    for (float& v : worker.kernel) v = normal(random);
    ClientOptions client;
    client.aggregators = {endpoint};
    auto started = ElasticClient::Start(client, *layout, worker.tensors);
    ASSERT_TRUE(started.ok()) << started.error().message;
    worker.client = std::move(*started);
  }
  EXPECT_EQ(workers[1].kernel, workers[0].kernel);
  for (int step = 0; step < 20; ++step) {
    for (Worker& worker : workers) {
      for (float& v : worker.kernel) v += 0.01f * normal(random);
      ASSERT_TRUE(worker.client->Exchange(worker.tensors).ok());
      ASSERT_TRUE(worker.client->Wait(std::chrono::seconds(10)).ok());
    }
  }
  for (Worker& worker : workers) {
    auto agree = worker.client->ViewsAgree();
    ASSERT_TRUE(agree.ok()) << agree.error().message;
    EXPECT_TRUE(*agree);
    EXPECT_EQ(worker.client->live(), 3u);
  }
  std::cout << *workers[0].client->AggregatorStatus() << "\n";
  for (Worker& worker : workers) {
    const Status done = worker.client->Finish(worker.tensors);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(worker.kernel, workers[0].kernel);
  }
  EXPECT_EQ((*aggregator)->totals().pushes, 3u * 20 * 4);
}

}  // namespace
}  // namespace tensorlightning
