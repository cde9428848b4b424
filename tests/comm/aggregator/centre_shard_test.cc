#include "comm/aggregator/centre_shard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "comm/client/worker_shard.h"
#include "comm/crc32c.h"

namespace tensorlightning {
namespace {

using Verdict = CentreShard::Verdict;
using Code = std::vector<std::byte>;

constexpr uint32_t kEntries = 5000;
const Shard kShard{0, kEntries, false};

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// A worker's side of one shard, as ClientCore drives it.
class Worker {
 public:
  Worker(const Policy& policy, uint32_t rank)
      : rank_(rank),
        policy_(policy),
        shard_(
            MakeWorkerShard(policy, kShard, std::make_shared<WorkerScratch>())),
        model_(kEntries) {}

  uint32_t rank() const { return rank_; }
  uint64_t next() const { return next_; }
  std::vector<float>& model() { return model_; }

  void Pull(CentreShard& centre) {
    const auto view = centre.Pull(rank_, policy_.down);
    ASSERT_TRUE(view.has_value());
    ASSERT_TRUE(shard_->Load(view->values).ok());
    // What is not in the centre is owed again.
    while (!kept_.empty() && next_ - 1 > view->applied) {
      ASSERT_TRUE(shard_->Owe(*Message::Parse(kept_.back(), kEntries)).ok());
      kept_.pop_back();
      --next_;
    }
    next_ = view->applied + 1;
    kept_.clear();
  }

  // Makes the next push.
  const Code& Step(uint32_t live) {
    Code out(shard_->MaxPushBytes());
    std::vector<float> staged = model_;
    const Result<Emitted> emitted = shard_->Step(staged, live, out);
    EXPECT_TRUE(emitted.ok());
    for (uint32_t i = 0; i < kEntries; ++i) model_[i] += staged[i];
    out.resize(emitted->bytes);
    kept_.push_back(out);
    ++next_;
    return kept_.back();
  }

  void Hear(const CentreShard::Reply& reply) {
    ASSERT_EQ(reply.sequence + 1, next_);
    const Result<Message> message = Message::Parse(reply.code, kEntries);
    ASSERT_TRUE(message.ok());
    ASSERT_TRUE(shard_->ApplyReply(*message).ok());
  }

  std::vector<float> View() const {
    std::vector<float> view(kEntries);
    EXPECT_TRUE(shard_->ReadView(view).ok());
    return view;
  }
  std::vector<float> Mean(uint32_t live) {
    std::vector<float> staged(kEntries);
    shard_->Deliver(staged, live);
    return staged;
  }

 private:
  uint32_t rank_;
  Policy policy_;
  std::unique_ptr<WorkerShard> shard_;
  std::vector<float> model_;
  uint64_t next_ = 1;
  std::vector<Code> kept_;
};

std::vector<float> CentreOf(const CentreShard& centre) {
  ShardSnapshot snapshot;
  centre.CopyTo(snapshot);
  return snapshot.centre;
}

// Adds a push to a sum, as anybody could.
void AddTo(std::vector<float>& sum, const Code& code) {
  DecodeAdd(*Message::Parse(code, kEntries), sum, 1.0f);
}

std::vector<float> Normal(std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(kEntries);
  for (float& value : values) value = normal(random);
  return values;
}

class Averaging : public testing::TestWithParam<const char*> {};

TEST_P(Averaging, KeepsItsPromisesOverRandomFaults) {
  const Policy policy = *Policy::FromName(GetParam());
  for (uint32_t seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    CentreShard centre(0, kShard, Rule::kAverage, false);
    ASSERT_TRUE(centre.Init(Normal(random)).ok());
    std::vector<float> sum = CentreOf(centre);
    std::vector<std::unique_ptr<Worker>> workers;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      workers.push_back(std::make_unique<Worker>(policy, rank));
      workers.back()->Pull(centre);
    }
    for (int round = 0; round < 60; ++round) {
      Worker& worker = *workers[random() % workers.size()];
      for (float& x : worker.model()) {
        x += 0.1f * static_cast<float>(static_cast<int>(random() % 21) - 10);
      }
      const uint64_t sequence = worker.next();
      const Code push = worker.Step(3);
      const unsigned fault = random() % 6;
      if (fault == 0) {
        // Lost on the way, and so was the connection: it starts over.
        centre.Drop(worker.rank());
        EXPECT_EQ(centre.Push(worker.rank(), sequence, push).verdict,
                  Verdict::kResync);
        worker.Pull(centre);
        ASSERT_TRUE(SameBits(CentreOf(centre), sum));
      } else {
        const CentreShard::Pushed pushed =
            centre.Push(worker.rank(), sequence, push);
        ASSERT_EQ(pushed.verdict, Verdict::kReply);
        ASSERT_TRUE(pushed.fresh);
        AddTo(sum, push);
        // The reply may get lost: the same push again, as often as it takes.
        const CentreShard::Reply first = centre.LastReply(worker.rank());
        const Code reply(first.code.begin(), first.code.end());
        for (unsigned again = 0; again < fault / 2; ++again) {
          const CentreShard::Pushed repeated =
              centre.Push(worker.rank(), sequence, push);
          ASSERT_EQ(repeated.verdict, Verdict::kReply);
          ASSERT_FALSE(repeated.fresh);
          const CentreShard::Reply stored = centre.LastReply(worker.rank());
          ASSERT_EQ(Code(stored.code.begin(), stored.code.end()), reply);
        }
        if (fault == 5) {
          // The worker never hears it, and pulls instead.
          worker.Pull(centre);
        } else {
          worker.Hear(centre.LastReply(worker.rank()));
        }
      }
      const std::vector<float> view = worker.View();
      ASSERT_EQ(centre.DigestFor(worker.rank())->view,
                Crc32c(std::as_bytes(std::span(view))));
      ASSERT_TRUE(SameBits(CentreOf(centre), sum)) << "round " << round;
      ASSERT_EQ(centre.AppliedOf(worker.rank()) + 1, worker.next());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, Averaging,
                         testing::Values("elastic", "local", "dense"));

struct CentreShardTest : testing::Test {
  CentreShardTest() : centre(0, kShard, Rule::kAverage, false) {
    std::mt19937 random(7);
    EXPECT_TRUE(centre.Init(Normal(random)).ok());
    worker.Pull(centre);
    worker.model() = Normal(random);
  }

  CentreShard centre;
  Worker worker{Policy::Elastic(), 0};
};

TEST_F(CentreShardTest, ViewsAreTheSameBitsAfterEveryExchange) {
  std::mt19937 random(3);
  Worker other{Policy::Elastic(), 1};
  other.Pull(centre);
  for (int round = 0; round < 30; ++round) {
    for (Worker* each : {&worker, &other}) {
      each->model() = Normal(random);
      const uint64_t sequence = each->next();
      ASSERT_EQ(centre.Push(each->rank(), sequence, each->Step(2)).verdict,
                Verdict::kReply);
      each->Hear(centre.LastReply(each->rank()));
      const std::vector<float> view = each->View();
      EXPECT_EQ(centre.DigestFor(each->rank())->view,
                Crc32c(std::as_bytes(std::span(view))));
    }
  }
}

TEST_F(CentreShardTest, IgnoresGhostsAndAsksForResyncOnGaps) {
  const Code first = worker.Step(1);
  ASSERT_EQ(centre.Push(0, 1, first).verdict, Verdict::kReply);
  worker.Hear(centre.LastReply(0));
  const Code second = worker.Step(1);
  ASSERT_EQ(centre.Push(0, 2, second).verdict, Verdict::kReply);
  const std::vector<float> before = CentreOf(centre);
  EXPECT_EQ(centre.Push(0, 1, first).verdict, Verdict::kIgnore);
  EXPECT_EQ(centre.Push(0, 4, second).verdict, Verdict::kResync);
  EXPECT_EQ(centre.Push(5, 1, second).verdict, Verdict::kResync)
      << "of somebody who never pulled";
  EXPECT_TRUE(SameBits(CentreOf(centre), before));
}

TEST_F(CentreShardTest, AfterAPullTheOldReplyIsGone) {
  const Code push = worker.Step(1);
  ASSERT_EQ(centre.Push(0, 1, push).verdict, Verdict::kReply);
  ASSERT_TRUE(centre.Pull(0, Policy().down).has_value());
  EXPECT_EQ(centre.Push(0, 1, push).verdict, Verdict::kResync);
}

TEST_F(CentreShardTest, RefusesWhatIsNotFiniteAndStaysClean) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::infinity(), std::ldexp(1.0f, 110)}) {
    // A code that no client of ours would send: take a valid one apart.
    std::vector<float> values(kEntries);
    values[17] = 1.0f;
    const Compression all{SelectionRule::Threshold(0.5), ValueCode::kFloat32};
    Code code(all.MaxBytes(kEntries));
    Workspace workspace;
    const auto emitted = Compress(values, {}, all, workspace, code);
    ASSERT_TRUE(emitted.ok());
    code.resize(emitted->bytes);
    bool found = false;
    for (size_t i = 0; i + 4 <= code.size(); ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, &code[i], sizeof(bits));
      if (bits != std::bit_cast<uint32_t>(1.0f)) continue;
      std::memcpy(&code[i], &bad, 4);
      found = true;
    }
    ASSERT_TRUE(found);
    const std::vector<float> before = CentreOf(centre);
    const CentreShard::Pushed pushed = centre.Push(0, 1, code);
    EXPECT_EQ(pushed.verdict, Verdict::kRefused);
    EXPECT_EQ(pushed.error->code, ErrorCode::kNotFinite);
    EXPECT_TRUE(SameBits(CentreOf(centre), before));
    EXPECT_EQ(centre.AppliedOf(0), 0u) << "its number is not used up";
  }
}

TEST_F(CentreShardTest, RefusesWhatIsNoCode) {
  const CentreShard::Pushed pushed = centre.Push(0, 1, Code(40));
  EXPECT_EQ(pushed.verdict, Verdict::kRefused);
  EXPECT_EQ(pushed.error->code, ErrorCode::kCorrupt);
}

TEST_F(CentreShardTest, TakesTheFirstWeightsOnly) {
  const std::vector<float> before = CentreOf(centre);
  EXPECT_TRUE(centre.Init(std::vector<float>(kEntries, 1.0f)).ok());
  EXPECT_TRUE(SameBits(CentreOf(centre), before));

  CentreShard fresh(0, kShard, Rule::kAverage, false);
  EXPECT_FALSE(fresh.Pull(0, Policy().down).has_value());
  std::vector<float> broken(kEntries);
  broken[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(fresh.Init(broken).ok());
  EXPECT_FALSE(fresh.Init(std::vector<float>(kEntries - 1)).ok());
  EXPECT_FALSE(fresh.has_centre());
}

TEST_F(CentreShardTest, ASnapshotKeepsCentreAndNumbersAndNothingElse) {
  const Code push = worker.Step(1);
  ASSERT_EQ(centre.Push(0, 1, push).verdict, Verdict::kReply);
  ShardSnapshot snapshot;
  centre.CopyTo(snapshot);
  CentreShard restored(0, kShard, Rule::kAverage, true);
  ASSERT_TRUE(restored.Restore(snapshot).ok());
  EXPECT_TRUE(SameBits(CentreOf(restored), CentreOf(centre)));
  EXPECT_EQ(restored.AppliedOf(0), 1u);
  EXPECT_EQ(restored.Push(0, 2, push).verdict, Verdict::kResync);
}

TEST_F(CentreShardTest, PushesAreSafeOnlyOnceASnapshotHasThem) {
  CentreShard kept(0, kShard, Rule::kAverage, true);
  ASSERT_TRUE(kept.Init(CentreOf(centre)).ok());
  worker.Pull(kept);
  ASSERT_EQ(kept.Push(0, 1, worker.Step(1)).verdict, Verdict::kReply);
  EXPECT_EQ(kept.LastReply(0).standing.durable, 0u);
  const AppliedPush applied[] = {{0, 1}};
  kept.MarkDurable(applied);
  EXPECT_EQ(kept.LastReply(0).standing.durable, 1u);
}

// ---- Gradients. -------------------------------------------------------------

TEST(GradientRule, SynchronousRepliesWaitForAllAndHoldTheSameSum) {
  Policy policy = Policy::Gradient(true);
  policy.up =
      policy.down = {SelectionRule::ChunkTopK(1.0), ValueCode::kFloat32};
  CentreShard centre(0, kShard, Rule::kGradientSync, false);
  ASSERT_TRUE(centre.Init(std::vector<float>(kEntries)).ok());
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    workers.push_back(std::make_unique<Worker>(policy, rank));
    workers.back()->Pull(centre);
  }
  for (int round = 0; round < 5; ++round) {
    for (uint32_t i = 0; i < 3; ++i) {
      Worker& worker = *workers[i];
      worker.model().assign(kEntries, static_cast<float>(i + 1));
      const uint64_t sequence = worker.next();
      ASSERT_EQ(centre.Push(i, sequence, worker.Step(3)).verdict,
                Verdict::kWait);
      const std::vector<uint32_t> ready = centre.TakeReady();
      ASSERT_EQ(ready.size(), i == 2 ? 3u : 0u);
    }
    for (const std::unique_ptr<Worker>& worker : workers) {
      const CentreShard::Reply reply = centre.LastReply(worker->rank());
      EXPECT_EQ(reply.standing.live, 3u);
      worker->Hear(reply);
      EXPECT_EQ(worker->Mean(3), std::vector<float>(kEntries, 2.0f));
    }
  }
}

TEST(GradientRule, AWorkerThatGoesCompletesTheRoundOfTheOthers) {
  const Policy policy = Policy::Gradient(true);
  CentreShard centre(0, kShard, Rule::kGradientSync, false);
  ASSERT_TRUE(centre.Init(std::vector<float>(kEntries)).ok());
  Worker first{policy, 0};
  Worker second{policy, 1};
  first.Pull(centre);
  second.Pull(centre);
  first.model().assign(kEntries, 1.0f);
  const Code push = first.Step(2);
  ASSERT_EQ(centre.Push(0, 1, push).verdict, Verdict::kWait);
  EXPECT_TRUE(centre.TakeReady().empty());
  EXPECT_EQ(centre.Push(0, 1, push).verdict, Verdict::kWait) << "asked again";
  centre.Drop(1);
  EXPECT_EQ(centre.TakeReady(), std::vector<uint32_t>{0});
  EXPECT_EQ(centre.LastReply(0).standing.live, 1u);
  EXPECT_EQ(centre.Push(0, 1, push).verdict, Verdict::kReply);
}

TEST(GradientRule, AsynchronousRepliesHoldEverythingOnceWhoeverPushedIt) {
  Policy policy = Policy::Gradient(false);
  policy.up =
      policy.down = {SelectionRule::ChunkTopK(1.0), ValueCode::kFloat32};
  CentreShard centre(0, kShard, Rule::kGradientAsync, false);
  ASSERT_TRUE(centre.Init(std::vector<float>(kEntries)).ok());
  Worker first{policy, 0};
  Worker second{policy, 1};
  first.Pull(centre);
  second.Pull(centre);
  float sum_first = 0.0f;
  float sum_second = 0.0f;
  std::mt19937 random(1);
  float pushed = 0.0f;
  for (int round = 0; round < 40; ++round) {
    Worker& worker = random() % 2 == 0 ? first : second;
    const auto gradient = static_cast<float>(random() % 8);
    worker.model().assign(kEntries, gradient);
    pushed += gradient;
    const uint64_t sequence = worker.next();
    ASSERT_EQ(centre.Push(worker.rank(), sequence, worker.Step(2)).verdict,
              Verdict::kReply);
    worker.Hear(centre.LastReply(worker.rank()));
    (&worker == &first ? sum_first : sum_second) += worker.Mean(1)[0];
  }
  // Who has not talked last learns the rest by a pull.
  first.Pull(centre);
  second.Pull(centre);
  EXPECT_EQ(sum_first + first.Mean(1)[0], pushed);
  EXPECT_EQ(sum_second + second.Mean(1)[0], pushed);
}

}  // namespace
}  // namespace tensorlightning
