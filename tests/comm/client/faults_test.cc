// Connections that break and aggregators that restart, in one process, where
// sanitizers see both ends.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "comm/snapshot.h"
#include "kernels/decode.h"
#include "tests/comm/client/workers.h"

namespace tensorlightning::testing {
namespace {

TEST(Faults, CutConnectionsLoseNothingAndApplyNothingTwice) {
  const auto aggregator = StartAggregator();
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t i = 0; i < 3; ++i) {
    workers.push_back(std::make_unique<Worker>(i));
    ASSERT_TRUE(workers[i]->Start(OptionsFor(*aggregator)).ok());
  }
  std::vector<std::thread> threads;
  threads.reserve(workers.size());
  for (const auto& worker : workers) {
    threads.emplace_back([&worker] {
      for (int i = 0; i < 12; ++i) {
        worker->Move(0.01f);
        ASSERT_TRUE(worker->client().Exchange(worker->tensors()).ok());
        if (i % 3 == 0) worker->client().CutConnections();
        ASSERT_TRUE(worker->client().Wait(kPatience).ok());
      }
      worker->ExpectViewsAgree();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(aggregator->totals().pushes, 3u * 12 * 3);
  uint64_t reconnects = 0;
  for (const auto& worker : workers) {
    reconnects += worker->client().counts().reconnects;
    EXPECT_EQ(worker->client().counts().owed_again, 0u)
        << "views survive a lost connection";
  }
  EXPECT_GE(reconnects, 6u);
}

// Every push, by rank, shard and number; of a number used again after a
// restart, the last is what counts.
class Ledger {
 public:
  std::function<void(uint32_t, uint64_t, std::span<const std::byte>)> Of(
      uint32_t rank) {
    return [this, rank](uint32_t shard, uint64_t sequence,
                        std::span<const std::byte> code) {
      const std::lock_guard lock(mutex_);
      pushes_[{rank, shard, sequence}].assign(code.begin(), code.end());
    };
  }

  // What the centre must be, if it was zeros and `applied` is in it.
  std::vector<float> Sum(const ShardSnapshot& snapshot) const {
    std::vector<float> sum(snapshot.centre.size());
    for (const AppliedPush& last : snapshot.applied) {
      for (uint64_t n = 1; n <= last.sequence; ++n) {
        const Bytes& code = pushes_.at({last.rank, snapshot.shard, n});
        DecodeAdd(*Message::Parse(code, sum.size()), sum, 1.0f);
      }
    }
    return sum;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, Bytes> pushes_;
};

bool IsSnapshot(const std::filesystem::directory_entry& entry) {
  return entry.path().extension() == ".tls";
}

// Makes the snapshots of one folder those of the other. One that disappears
// meanwhile, because newer ones are there, is not missed.
void ReplaceSnapshots(const std::string& from, const std::string& to) {
  std::error_code gone;
  std::filesystem::create_directory(to);
  for (const auto& entry : std::filesystem::directory_iterator(to)) {
    if (IsSnapshot(entry)) std::filesystem::remove(entry.path(), gone);
  }
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    if (IsSnapshot(entry)) {
      std::filesystem::copy(entry.path(),
                            std::filesystem::path(to) / entry.path().filename(),
                            gone);
    }
  }
}

void WaitForSnapshot(const Aggregator& aggregator) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (aggregator.totals().snapshots == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

TEST(Faults, ARestartedAggregatorGoesOnFromItsSnapshotAndLosesNothing) {
  const std::string folder = MakeFolder();
  AggregatorOptions options;
  options.snapshot_folder = folder;
  options.snapshot_every = std::chrono::hours(1);
  const std::string path = folder + "/socket";
  options.listen = {{"", 0, path}};
  const auto start = [&] { return StartAggregator(options); };
  auto aggregator = start();

  Ledger ledger;
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t i = 0; i < 2; ++i) {
    ClientOptions client = OptionsFor(*aggregator);
    client.policy = Policy::Gradient(false);
    // Exact sums in any order: whole numbers, unpruned and unrounded.
    client.policy.up = client.policy.down = Policy::Dense().up;
    client.rank = static_cast<int32_t>(i);
    client.on_push = ledger.Of(i);
    workers.push_back(std::make_unique<Worker>(i));
    ASSERT_TRUE(workers[i]->Start(client).ok());
  }
  // From here on only this test takes snapshots.
  WaitForSnapshot(*aggregator);
  constexpr int kExchanges = 24;
  std::atomic<int> running{2};
  std::vector<std::thread> threads;
  threads.reserve(workers.size());
  for (const auto& worker : workers) {
    threads.emplace_back([&worker, &running] {
      for (int i = 0; i < kExchanges; ++i) {
        for (std::vector<float>& tensor : worker->values()) {
          for (size_t j = 0; j < tensor.size(); ++j) {
            tensor[j] = static_cast<float>((j + static_cast<size_t>(i)) % 16);
          }
        }
        worker->Exchange();
      }
      running.fetch_sub(1);
    });
  }
  int restarts = 0;
  while (running.load() > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    // A crash, as far as disk and workers can tell: what was applied after this
    // snapshot is gone, and so is the one that a clean end writes.
    ASSERT_TRUE(aggregator->TakeSnapshot().ok());
    const std::string saved = folder + "-saved";
    ReplaceSnapshots(folder, saved);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    aggregator.reset();
    ReplaceSnapshots(saved, folder);
    aggregator = start();
    ++restarts;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(restarts, 1);
  uint64_t owed_again = 0;
  for (const auto& worker : workers) {
    worker->ExpectViewsAgree();
    EXPECT_EQ(worker->client().counts().forgotten, 0u);
    owed_again += worker->client().counts().owed_again;
  }
  EXPECT_GE(owed_again, 1u) << "no crash has lost anything: a test of nothing";
  // One more exchange of nothing brings what is still owed.
  for (const auto& worker : workers) {
    for (std::vector<float>& tensor : worker->values()) {
      std::fill(tensor.begin(), tensor.end(), 0.0f);
    }
    worker->Exchange();
  }
  ASSERT_TRUE(aggregator->Stop().ok());
  const Result<FoundSnapshot> found = FindSnapshot(folder);
  ASSERT_TRUE(found.ok() && found->snapshot.has_value());
  for (const ShardSnapshot& shard : found->snapshot->shards) {
    EXPECT_EQ(shard.centre, ledger.Sum(shard)) << "shard " << shard.shard;
  }
  // And it is all that was ever brought: two workers, each 24 rounds.
  const ShardSnapshot& first = found->snapshot->shards[0];
  for (size_t j = 0; j < 100; ++j) {
    float expected = 0.0f;
    for (size_t i = 0; i < kExchanges; ++i) {
      expected += 2.0f * static_cast<float>((j + i) % 16);
    }
    ASSERT_EQ(first.centre[j], expected) << "entry " << j;
  }
  workers.clear();
  std::filesystem::remove_all(folder);
  std::filesystem::remove_all(folder + "-saved");
}

TEST(Faults, AnAggregatorThatLostEverythingGetsItBackFromRankZero) {
  const std::string path = MakeFolder() + "/socket";
  AggregatorOptions options;
  options.listen = {{"", 0, path}};
  auto aggregator = StartAggregator(options);
  Worker first(1);
  Worker second(2);
  ASSERT_TRUE(first.Start(OptionsFor(*aggregator)).ok());
  ASSERT_TRUE(second.Start(OptionsFor(*aggregator)).ok());
  for (int i = 0; i < 3; ++i) {
    first.Move(0.1f);
    first.Exchange();
    second.Move(0.1f);
    second.Exchange();
  }
  aggregator.reset();
  aggregator = StartAggregator(options);
  first.Exchange();
  second.Exchange();
  first.ExpectViewsAgree();
  second.ExpectViewsAgree();
  EXPECT_GE(first.client().counts().resyncs, 3u);
}

TEST(Faults, SynchronousRoundsSurviveGradientsThatAreNotFiniteAndCuts) {
  const auto aggregator = StartAggregator();
  ClientOptions options = OptionsFor(*aggregator);
  options.policy = Policy::Gradient(true);
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t i = 0; i < 2; ++i) {
    workers.push_back(std::make_unique<Worker>(i));
    ASSERT_TRUE(workers[i]->Start(options).ok());
  }
  // Each has its troubles in other rounds and other shards than the other one.
  std::vector<std::thread> threads;
  for (size_t w = 0; w < 2; ++w) {
    threads.emplace_back([&worker = *workers[w], w] {
      for (size_t round = 0; round < 8; ++round) {
        worker.Move(0.1f);
        if (round % 3 == w) {
          float& value = worker.values()[w].front();
          const float good = value;
          value = std::numeric_limits<float>::infinity();
          ASSERT_TRUE(*worker.client().Exchange(worker.tensors()));
          ASSERT_TRUE(worker.client().Wait(kPatience).ok());
          const auto refused = worker.client().Exchange(worker.tensors());
          ASSERT_FALSE(refused.ok());
          EXPECT_EQ(refused.error().code, ErrorCode::kNotFinite);
          value = good;
        }
        ASSERT_TRUE(*worker.client().Exchange(worker.tensors()));
        if (round % 2 == w) worker.client().CutConnections();
        const Status done = worker.client().Wait(kPatience);
        ASSERT_TRUE(done.ok()) << done.error().message;
        ASSERT_TRUE(worker.client().Collect(worker.tensors()).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(aggregator->totals().pushes, 2u * 8 * 3);
}

TEST(Faults, TheFirstSnapshotIsThereAsSoonAsTheWeightsAre) {
  AggregatorOptions options;
  options.snapshot_folder = MakeFolder();
  options.snapshot_every = std::chrono::hours(1);
  const auto aggregator = StartAggregator(options);
  Worker worker(1);
  ASSERT_TRUE(worker.Start(OptionsFor(*aggregator)).ok());
  WaitForSnapshot(*aggregator);
  EXPECT_EQ(aggregator->totals().failed_snapshots, 0u);
}

TEST(Faults, AWorkerWhoseLeaseRanOutComesBack) {
  AggregatorOptions options;
  options.lease = std::chrono::milliseconds(400);
  options.snapshot_folder = MakeFolder();
  options.snapshot_every = std::chrono::hours(1);
  const auto aggregator = StartAggregator(std::move(options));
  ClientOptions client = OptionsFor(*aggregator);
  Worker worker(1);
  ASSERT_TRUE(worker.Start(client).ok());
  worker.Exchange();
  // Its signs of life stop with the pool's only thread.
  worker.Crash();
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (aggregator->totals().live > 0 &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(aggregator->totals().live, 0u);
  Worker again(2);
  client.rank = 0;
  ASSERT_TRUE(again.Start(client).ok());
  again.Exchange();
  again.ExpectViewsAgree();
}

TEST(Faults, ClientsEndCleanlyFromAnyState) {
  const auto aggregator = StartAggregator();
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    Worker worker(static_cast<uint32_t>(i));
    ASSERT_TRUE(worker.Start(OptionsFor(*aggregator)).ok());
    if (random() % 2 == 0) (void)worker.client().Exchange(worker.tensors());
    if (random() % 3 == 0) worker.client().CutConnections();
    if (random() % 2 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    }
    worker.Crash();
  }
}

TEST(Faults, AggregatorsEndCleanlyWhileEverybodyTalks) {
  for (int round = 0; round < 5; ++round) {
    auto aggregator = StartAggregator();
    Worker first(1);
    Worker second(2);
    ASSERT_TRUE(first.Start(OptionsFor(*aggregator)).ok());
    ASSERT_TRUE(second.Start(OptionsFor(*aggregator)).ok());
    std::atomic<bool> stop{false};
    std::thread busy([&] {
      while (!stop.load()) {
        (void)first.client().Exchange(first.tensors());
        (void)second.client().Exchange(second.tensors());
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * round));
    EXPECT_TRUE(aggregator->Stop().ok());
    stop.store(true);
    busy.join();
  }
}

}  // namespace
}  // namespace tensorlightning::testing
