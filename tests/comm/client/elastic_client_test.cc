#include "comm/client/elastic_client.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "tests/comm/client/workers.h"

namespace tensorlightning::testing {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ElasticClient, AllStartFromTheWeightsOfRankZero) {
  const auto aggregator = StartAggregator();
  Worker first(1);
  const auto own = first.values();
  ASSERT_TRUE(first.Start(OptionsFor(*aggregator)).ok());
  EXPECT_EQ(first.values(), own);
  Worker second(2);
  ASSERT_TRUE(second.Start(OptionsFor(*aggregator)).ok());
  EXPECT_EQ(second.values(), own);
  EXPECT_EQ(first.client().rank(), 0u);
  EXPECT_EQ(second.client().rank(), 1u);
  EXPECT_EQ(second.client().live(), 2u);
}

TEST(ElasticClient, OthersWaitForRankZero) {
  const auto aggregator = StartAggregator();
  Worker late(1);
  Worker early(2);
  ClientOptions options = OptionsFor(*aggregator);
  options.rank = 1;
  std::thread waiting(
      [&early, options] { ASSERT_TRUE(early.Start(options).ok()); });
  // Long enough that it has surely been told that there is nothing yet.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  options.rank = 0;
  const auto own = late.values();
  ASSERT_TRUE(late.Start(options).ok());
  waiting.join();
  EXPECT_EQ(early.values(), own);
}

class Policies : public ::testing::TestWithParam<const char*> {};

TEST_P(Policies, ManyWorkersAtOnceEndWithTheSameBitsOnBothSides) {
  AggregatorOptions options;
  options.threads = 3;
  const auto aggregator = StartAggregator(std::move(options));
  constexpr int kWorkers = 4;
  constexpr int kExchanges = 5;
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    workers.push_back(std::make_unique<Worker>(i));
    ClientOptions client = OptionsFor(*aggregator);
    client.policy = *Policy::FromName(GetParam());
    ASSERT_TRUE(workers[i]->Start(client).ok());
  }
  std::vector<std::thread> threads;
  threads.reserve(workers.size());
  for (const auto& worker : workers) {
    threads.emplace_back([&worker] {
      for (int i = 0; i < kExchanges; ++i) {
        worker->Move(0.01f);
        worker->Exchange();
      }
      worker->ExpectViewsAgree();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const AggregatorTotals totals = aggregator->totals();
  EXPECT_EQ(totals.pushes, kWorkers * kExchanges * 3u);
  EXPECT_EQ(totals.refused, 0u);
  EXPECT_EQ(totals.live, 4u);
  uint64_t sent = 0;
  uint64_t received = 0;
  for (const auto& worker : workers) {
    sent += worker->client().counts().entries_sent;
    received += worker->client().counts().entries_received;
  }
  EXPECT_EQ(sent, totals.entries_in);
  EXPECT_EQ(received, totals.entries_out);
}

INSTANTIATE_TEST_SUITE_P(All, Policies,
                         ::testing::Values("elastic", "local", "dense",
                                           "gradient", "gradient-async"));

TEST(ElasticClient, DenseIsPlainElasticAveraging) {
  const auto aggregator = StartAggregator();
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t i = 0; i < 2; ++i) {
    workers.push_back(std::make_unique<Worker>(i));
    ClientOptions client = OptionsFor(*aggregator);
    client.policy = Policy::Dense(0.8);
    ASSERT_TRUE(workers[i]->Start(client).ok());
  }
  workers[0]->WaitForLive(2);
  // The textbook: d = a (x - C); x -= d; C += d, one worker after another. What
  // a worker knows of C is C as it was after its own last exchange.
  std::vector<double> centre(workers[0]->values()[0].begin(),
                             workers[0]->values()[0].end());
  std::vector<std::vector<double>> x(2, centre);
  std::vector<std::vector<double>> view(2, centre);
  for (int round = 0; round < 6; ++round) {
    for (size_t w = 0; w < 2; ++w) {
      Worker& worker = *workers[w];
      worker.Move(0.1f);
      for (size_t i = 0; i < centre.size(); ++i) {
        x[w][i] = worker.values()[0][i];
        const double d = 0.4 * (x[w][i] - view[w][i]);
        x[w][i] -= d;
        centre[i] += d;
        view[w][i] = centre[i];
      }
      worker.Exchange();
      for (size_t i = 0; i < centre.size(); ++i) {
        ASSERT_NEAR(worker.values()[0][i], x[w][i], 1e-4) << round;
      }
    }
  }
  ASSERT_TRUE(workers[0]->client().Pull(workers[0]->tensors()).ok());
  for (size_t i = 0; i < centre.size(); ++i) {
    ASSERT_NEAR(workers[0]->values()[0][i], centre[i], 1e-4);
  }
}

TEST(ElasticClient, SynchronousGradientsAreTheMeanOfAll) {
  const auto aggregator = StartAggregator();
  ClientOptions options = OptionsFor(*aggregator);
  options.policy = Policy::Gradient(true);
  options.policy.up = options.policy.down = Policy::Dense().up;
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t i = 0; i < 3; ++i) {
    workers.push_back(std::make_unique<Worker>(i));
    ASSERT_TRUE(workers[i]->Start(options).ok());
  }
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 3; ++i) {
    threads.emplace_back([&worker = *workers[i], i] {
      for (int round = 0; round < 5; ++round) {
        for (std::vector<float>& tensor : worker.values()) {
          tensor.assign(tensor.size(), static_cast<float>(3 * i + round));
        }
        worker.Exchange();
        for (const std::vector<float>& tensor : worker.values()) {
          ASSERT_EQ(tensor, std::vector<float>(tensor.size(), 3.0f + round));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ElasticClient, TheNumberOfWorkersIsFollowed) {
  AggregatorOptions options;
  options.lease = std::chrono::milliseconds(1500);
  const auto aggregator = StartAggregator(std::move(options));
  Worker stays(1);
  ASSERT_TRUE(stays.Start(OptionsFor(*aggregator)).ok());
  {
    Worker leaves(2);
    ASSERT_TRUE(leaves.Start(OptionsFor(*aggregator)).ok());
    stays.WaitForLive(2);
    ASSERT_TRUE(leaves.client().Finish(leaves.tensors()).ok());
  }
  stays.WaitForLive(1);
  {
    Worker dies(3);
    ASSERT_TRUE(dies.Start(OptionsFor(*aggregator)).ok());
    stays.WaitForLive(2);
  }
  stays.WaitForLive(1);
}

TEST(ElasticClient, StepsTakenMeanwhileAreKept) {
  const auto aggregator = StartAggregator();
  Worker worker(1);
  ASSERT_TRUE(worker.Start(OptionsFor(*aggregator)).ok());
  Worker other(2);
  ASSERT_TRUE(other.Start(OptionsFor(*aggregator)).ok());
  worker.WaitForLive(2);
  std::vector<float>& values = worker.values()[0];
  const float start = values[0];
  values[0] = start + 1.0f;
  ASSERT_TRUE(*worker.client().Exchange(worker.tensors()));
  values[0] += 10.0f;  // Training goes on.
  ASSERT_TRUE(worker.client().Wait(kPatience).ok());
  ASSERT_TRUE(*worker.client().Collect(worker.tensors()));
  EXPECT_NEAR(values[0], start + 11.0f - 0.45f, 1e-5);
  EXPECT_FALSE(*worker.client().Collect(worker.tensors())) << "only once";
}

TEST(ElasticClient, BacksOffWhileAnExchangeIsUnderWay) {
  auto aggregator = StartAggregator();
  Worker worker(1);
  ClientOptions options = OptionsFor(*aggregator);
  options.schedule = std::make_shared<Every>(2);
  ASSERT_TRUE(worker.Start(options).ok());
  ASSERT_TRUE(aggregator->Stop().ok());
  EXPECT_FALSE(*worker.client().Step(worker.tensors()));
  EXPECT_TRUE(*worker.client().Step(worker.tensors()));
  // Nobody answers, and still no step waits.
  for (int i = 0; i < 100; ++i) {
    ASSERT_FALSE(*worker.client().Step(worker.tensors()));
  }
  EXPECT_TRUE(worker.client().busy());
  EXPECT_GE(worker.client().counts().backed_off, 1u);
  const Status waited = worker.client().Wait(std::chrono::milliseconds(200));
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().code, ErrorCode::kTimedOut);
  EXPECT_TRUE(Contains(waited.error().message, "127.0.0.1"))
      << waited.error().message;
}

TEST(ElasticClient, AModelWithNaNIsNotSentAndTheCallerIsTold) {
  const auto aggregator = StartAggregator();
  Worker worker(1);
  ASSERT_TRUE(worker.Start(OptionsFor(*aggregator)).ok());
  const uint64_t before = aggregator->totals().pushes;
  worker.values()[1][7] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(*worker.client().Exchange(worker.tensors()));
  ASSERT_TRUE(worker.client().Wait(kPatience).ok());
  const Result<bool> next = worker.client().Exchange(worker.tensors());
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, ErrorCode::kNotFinite);
  EXPECT_EQ(aggregator->totals().pushes, before + 2) << "the other two shards";
  worker.ExpectViewsAgree();
}

TEST(ElasticClient, SpreadOverProcessesTheShardsAreOneModel) {
  std::vector<std::unique_ptr<Aggregator>> parts;
  ClientOptions options;
  options.log = Log(2, LogLevel::kNone);
  for (uint32_t part = 0; part < 3; ++part) {
    AggregatorOptions aggregator;
    aggregator.part = part;
    aggregator.parts = 3;
    parts.push_back(StartAggregator(std::move(aggregator)));
    options.aggregators.push_back(parts.back()->endpoints()[0]);
  }
  Worker first(1);
  Worker second(2);
  ASSERT_TRUE(first.Start(options).ok());
  ASSERT_TRUE(second.Start(options).ok());
  EXPECT_EQ(first.values(), second.values());
  for (int i = 0; i < 5; ++i) {
    for (Worker* worker : {&first, &second}) {
      worker->Move(0.01f);
      worker->Exchange();
    }
  }
  first.ExpectViewsAgree();
  second.ExpectViewsAgree();
  for (const auto& part : parts) EXPECT_EQ(part->totals().pushes, 10u);
  ASSERT_TRUE(first.client().Finish(first.tensors()).ok());
  ASSERT_TRUE(second.client().Finish(second.tensors()).ok());
  EXPECT_EQ(first.values(), second.values());

  options.aggregators.pop_back();
  Worker short_of_one(3);
  const Status refused = short_of_one.Start(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(Contains(refused.error().message, "served by none"))
      << refused.error().message;
}

TEST(ElasticClient, UnixSocketsAndIpv6CarryTheSame) {
  for (const Endpoint& endpoint :
       {Endpoint{"", 0, MakeFolder() + "/socket"}, Endpoint{"::1", 0, ""}}) {
    AggregatorOptions options;
    options.listen = {endpoint};
    const auto aggregator = StartAggregator(std::move(options));
    Worker worker(1);
    const Status started = worker.Start(OptionsFor(*aggregator));
    ASSERT_TRUE(started.ok()) << started.error().message;
    worker.Exchange();
    worker.ExpectViewsAgree();
  }
}

TEST(ElasticClient, SaysWhichTensorDiffers) {
  const auto aggregator = StartAggregator();
  Worker worker(1);
  ASSERT_TRUE(worker.Start(OptionsFor(*aggregator)).ok());
  Worker other(
      2, *Layout::Make({{"dense/kernel", {300, 1001}}, {"dense/bias", {100}}}));
  const Status refused = other.Start(OptionsFor(*aggregator));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_TRUE(Contains(refused.error().message, "dense/kernel"));
  EXPECT_TRUE(Contains(refused.error().message, "1001"));
}

TEST(ElasticClient, SaysWhatIsWrongWithJobRuleAndSecret) {
  AggregatorOptions options;
  options.secret = *Secret::FromBytes("a secret of some length");
  const auto aggregator = StartAggregator(std::move(options));
  ClientOptions good = OptionsFor(*aggregator);
  good.secret = *Secret::FromBytes("a secret of some length");
  Worker worker(1);
  ASSERT_TRUE(worker.Start(good).ok());

  ClientOptions bad = good;
  bad.job = "another";
  EXPECT_TRUE(Contains(Worker(2).Start(bad).error().message, "job 'default'"));
  bad = good;
  bad.policy = Policy::Gradient(true);
  EXPECT_TRUE(Contains(Worker(2).Start(bad).error().message, "gradient-sync"));
  bad = good;
  bad.secret = *Secret::FromBytes("another secret altogether");
  EXPECT_EQ(Worker(2).Start(bad).error().code, ErrorCode::kRefused);
  bad.secret = Secret();
  const Status refused = Worker(2).Start(bad);
  EXPECT_TRUE(Contains(refused.error().message, "TL_SECRET_FILE"))
      << refused.error().message;
}

TEST(ElasticClient, ALaterAttemptOfARankTakesItOver) {
  const auto aggregator = StartAggregator();
  ClientOptions options = OptionsFor(*aggregator);
  options.rank = 0;
  options.attempt = 1;
  Worker old(1);
  ASSERT_TRUE(old.Start(options).ok());
  options.attempt = 2;
  Worker young(2);
  ASSERT_TRUE(young.Start(options).ok());
  EXPECT_EQ(young.values(), old.values()) << "it starts from the centre";
  young.Exchange();
  // The old one notices at the latest when it talks.
  const auto until = std::chrono::steady_clock::now() + kPatience;
  Result<bool> fenced = old.client().Exchange(old.tensors());
  while (fenced.ok() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    fenced = old.client().Exchange(old.tensors());
  }
  ASSERT_FALSE(fenced.ok());
  EXPECT_TRUE(Contains(fenced.error().message, "taken over"))
      << fenced.error().message;
  EXPECT_EQ(aggregator->totals().live, 1u);
}

TEST(ElasticClient, WithoutAnAggregatorItSaysWhomItTriedAndEnds) {
  ClientOptions options;
  options.aggregators = {{"127.0.0.1", 1, ""}};
  options.patience = std::chrono::milliseconds(300);
  options.log = Log(2, LogLevel::kNone);
  const Status refused = Worker(1).Start(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kTimedOut);
  EXPECT_TRUE(Contains(refused.error().message, "127.0.0.1:1"))
      << refused.error().message;
}

TEST(ElasticClient, GivesUpWhenTheAggregatorStaysAway) {
  auto aggregator = StartAggregator();
  ClientOptions options = OptionsFor(*aggregator);
  options.give_up = std::chrono::milliseconds(300);
  Worker worker(1);
  ASSERT_TRUE(worker.Start(options).ok());
  aggregator.reset();
  ASSERT_TRUE(worker.client().Exchange(worker.tensors()).ok());
  const Status waited = worker.client().Wait(kPatience);
  ASSERT_FALSE(waited.ok());
  EXPECT_TRUE(Contains(waited.error().message, "no aggregator at"));
  EXPECT_FALSE(worker.client().Exchange(worker.tensors()).ok());
}

}  // namespace
}  // namespace tensorlightning::testing
