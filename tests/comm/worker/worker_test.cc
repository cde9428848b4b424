#include "comm/worker/worker.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/worker/embedded_aggregators.h"

namespace tensorlightning {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlice{50};
constexpr milliseconds kPatience{60'000};

Layout TwoTensors() {
  return *Layout::Make({{"kernel", {100, 50}}, {"bias", {50}}});
}

// A model of two tensors, and a worker for it.
class Trainer {
 public:
  explicit Trainer(float value)
      : kernel_(5000, value), bias_(50, value), tensors_{kernel_, bias_} {}

  Status Begin(const std::string& settings) {
    Result<WorkerOptions> options =
        WorkerOptions::Parse(settings + " patience=60");
    if (!options.ok()) return options.error();
    return BeginWith(*options);
  }
  Status BeginWith(const WorkerOptions& options) {
    Result<std::unique_ptr<Worker>> worker =
        Worker::Begin(options, TwoTensors(), tensors_);
    if (!worker.ok()) return worker.error();
    worker_ = std::move(*worker);
    return Done{};
  }
  Status Join() {
    while (true) {
      const Result<bool> joined = worker_->Joined(tensors_, kSlice);
      if (!joined.ok()) return joined.error();
      if (*joined) return Done{};
    }
  }

  Worker& worker() { return *worker_; }
  Tensors tensors() { return tensors_; }
  std::vector<float>& kernel() { return kernel_; }
  std::vector<float>& bias() { return bias_; }

 private:
  std::vector<float> kernel_;
  std::vector<float> bias_;
  std::vector<std::span<float>> tensors_;
  std::unique_ptr<Worker> worker_;
};

std::unique_ptr<Aggregator> StartAggregator() {
  AggregatorOptions options;
  options.listen = {{"127.0.0.1", 0, ""}};
  options.log = Log(2, LogLevel::kNone);
  Result<std::unique_ptr<Aggregator>> started =
      Aggregator::Start(std::move(options));
  EXPECT_TRUE(started.ok());
  return std::move(*started);
}

std::string At(const Aggregator& aggregator) {
  return "aggregator=" + aggregator.endpoints().front().ToString() + " ";
}

TEST(Worker, AloneNothingOfItsModelIsEverChanged) {
  for (const char* policy : {"elastic", "local", "dense"}) {
    Trainer trainer(1.0f);
    ASSERT_TRUE(trainer.Begin(std::string("period=1 policy=") + policy).ok());
    ASSERT_TRUE(trainer.Join().ok());
    for (int i = 1; i <= 50; ++i) {
      for (float& value : trainer.kernel()) value += 0.25f;
      ASSERT_TRUE(trainer.worker().Step(trainer.tensors(), 1).ok());
      ASSERT_EQ(trainer.kernel()[7], 1.0f + 0.25f * i) << policy;
    }
    ASSERT_TRUE(trainer.worker().Pull(trainer.tensors()).ok());
    ASSERT_TRUE(trainer.worker().Finish(trainer.tensors(), false).ok());
    EXPECT_EQ(trainer.kernel()[4999], 13.5f) << policy;
    EXPECT_NE(trainer.worker().StatisticsJson().find("\"steps\":50"),
              std::string::npos);
  }
}

// Workers that end apart may never meet: one goes on where the other has ended.
TEST(Worker, WhoEndsApartLeavesAllOfItsWorkInTheCentre) {
  for (const char* policy : {"elastic", "local"}) {
    const auto aggregator = StartAggregator();
    const std::string settings = At(*aggregator) +
                                 "size=2 period=1 density=0.01 ending=apart "
                                 "policy=" +
                                 policy + " ";
    Trainer first(1.0f);
    ASSERT_TRUE(first.Begin(settings + "rank=0").ok());
    ASSERT_TRUE(first.Join().ok());
    for (size_t i = 0; i < first.kernel().size(); ++i) {
      first.kernel()[i] += 0.001f * static_cast<float>(i);
    }
    ASSERT_TRUE(first.worker().Step(first.tensors(), 1).ok());
    ASSERT_TRUE(first.worker().FinishTogether(first.tensors(), false).ok());

    Trainer second(7.0f);
    ASSERT_TRUE(second.Begin(settings + "rank=1").ok());
    ASSERT_TRUE(second.Join().ok());
    for (size_t i = 0; i < first.kernel().size(); ++i) {
      ASSERT_NEAR(second.kernel()[i], 1.0f + 0.001f * static_cast<float>(i),
                  1e-5)
          << policy << " " << i;
    }
  }
}

TEST(Worker, TwoStartFromTheSameWeightsAndEndWithTheCentre) {
  const auto aggregator = StartAggregator();
  Trainer first(1.0f);
  Trainer second(2.0f);
  ASSERT_TRUE(first.Begin(At(*aggregator) + "rank=0 size=2 period=1").ok());
  ASSERT_TRUE(second.Begin(At(*aggregator) + "rank=1 size=2 period=1").ok());
  ASSERT_TRUE(first.Join().ok());
  ASSERT_TRUE(second.Join().ok());
  EXPECT_EQ(second.kernel(), first.kernel());
  for (int i = 0; i < 20; ++i) {
    for (Trainer* each : {&first, &second}) {
      for (float& value : each->kernel()) value += 0.01f;
      ASSERT_TRUE(each->worker().Exchange(each->tensors()).ok());
      while (!*each->worker().Wait(kSlice)) {
      }
    }
  }
  ASSERT_TRUE(first.worker().Finish(first.tensors(), false).ok());
  ASSERT_TRUE(second.worker().Finish(second.tensors(), true).ok());
  EXPECT_GT(first.bias()[0], 0.9f);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (aggregator->totals().live > 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "both have left";
    std::this_thread::sleep_for(kSlice);
  }
}

TEST(Worker, ShowsTheCentreAndKeepsItsWeights) {
  const auto aggregator = StartAggregator();
  Trainer first(1.0f);
  Trainer second(1.0f);
  ASSERT_TRUE(first.Begin(At(*aggregator) + "rank=0 size=2 policy=dense").ok());
  ASSERT_TRUE(
      second.Begin(At(*aggregator) + "rank=1 size=2 policy=dense").ok());
  ASSERT_TRUE(first.Join().ok());
  ASSERT_TRUE(second.Join().ok());
  for (float& value : second.kernel()) value += 1.0f;
  for (int i = 0; i < 3; ++i) {
    for (Trainer* each : {&second, &first}) {
      ASSERT_TRUE(each->worker().Exchange(each->tensors()).ok());
      while (!*each->worker().Wait(kSlice)) {
      }
    }
  }
  Trainer shown(0.0f);
  const auto received = [&first] {
    const std::string all = first.worker().StatisticsJson();
    const std::string name = R"("bytes_received":)";
    return std::stoull(all.substr(all.find(name) + name.size()));
  };
  const uint64_t before = received();
  ASSERT_TRUE(first.worker().Show(first.tensors(), shown.tensors()).ok());
  EXPECT_LT(received(), before + 1000) << "a pong, but no model";
  EXPECT_GT(shown.kernel()[0], 1.2f);
  EXPECT_FLOAT_EQ(shown.bias()[0], 1.0f);
  EXPECT_NE(first.kernel()[0], shown.kernel()[0]);
}

TEST(Worker, AloneItShowsItself) {
  Trainer trainer(3.0f);
  ASSERT_TRUE(trainer.Begin("").ok());
  ASSERT_TRUE(trainer.Join().ok());
  Trainer shown(0.0f);
  ASSERT_TRUE(trainer.worker().Show(trainer.tensors(), shown.tensors()).ok());
  EXPECT_EQ(shown.kernel(), trainer.kernel());
}

TEST(Worker, RankZeroEndsWithTheWorkOfThoseWhoEndLater) {
  const auto aggregator = StartAggregator();
  const std::string settings =
      At(*aggregator) + "size=2 policy=dense period=1 ";
  Trainer first(1.0f);
  Trainer second(1.0f);
  ASSERT_TRUE(first.Begin(settings + "rank=0").ok());
  ASSERT_TRUE(second.Begin(settings + "rank=1").ok());
  ASSERT_TRUE(first.Join().ok());
  ASSERT_TRUE(second.Join().ok());
  std::future<Status> ended = std::async(std::launch::async, [&first] {
    return first.worker().FinishTogether(first.tensors(), false);
  });
  EXPECT_EQ(ended.wait_for(milliseconds(300)), std::future_status::timeout);
  for (float& value : second.kernel()) value = 9.0f;
  ASSERT_TRUE(second.worker().FinishTogether(second.tensors(), false).ok());
  const Status status = ended.get();
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_GT(first.kernel()[0], 3.0f);
  EXPECT_EQ(first.kernel(), second.kernel());
}

TEST(Worker, RankZeroWaitsForWhoWasNeverThereOnlyAsLongAsItsPatience) {
  const auto aggregator = StartAggregator();
  Trainer trainer(1.0f);
  Result<WorkerOptions> options =
      WorkerOptions::Parse(At(*aggregator) + "rank=0 size=2 patience=0.5");
  ASSERT_TRUE(options.ok());
  ASSERT_TRUE(trainer.BeginWith(*options).ok());
  ASSERT_TRUE(trainer.Join().ok());
  EXPECT_TRUE(trainer.worker().FinishTogether(trainer.tensors(), false).ok());
  EXPECT_EQ(trainer.kernel()[0], 1.0f);
}

TEST(Worker, TellsTheLauncherOfItsSteps) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  setenv("TL_REPORT_FD", std::to_string(ends[1]).c_str(), 1);
  {
    Trainer trainer(1.0f);
    ASSERT_TRUE(trainer.Begin("report=1").ok());
    ASSERT_TRUE(trainer.Join().ok());
    trainer.worker().set_loss(0.5);
    ASSERT_TRUE(trainer.worker().Step(trainer.tensors(), 7).ok());
    ASSERT_TRUE(trainer.worker().Step(trainer.tensors(), 5).ok());
  }
  unsetenv("TL_REPORT_FD");
  std::string said(1 << 12, '\0');
  said.resize(static_cast<size_t>(read(ends[0], said.data(), said.size())));
  EXPECT_NE(said.find(R"("step":7,"done":false)"), std::string::npos) << said;
  EXPECT_NE(said.find(R"("step":12,"done":true)"), std::string::npos) << said;
  EXPECT_NE(said.find(R"("loss":0.5)"), std::string::npos) << said;
  close(ends[0]);
  close(ends[1]);
}

TEST(Worker, GradientsAreAveragedFromTheSameWeights) {
  const auto aggregator = StartAggregator();
  const std::string settings = At(*aggregator) +
                               "size=2 policy=gradient density=1 bits=32 "
                               "reply_density=1 ";
  Trainer first(1.0f);
  Trainer second(2.0f);
  ASSERT_TRUE(first.Begin(settings + "rank=0").ok());
  ASSERT_TRUE(second.Begin(settings + "rank=1").ok());
  // Neither has joined before both have.
  auto joining = std::async(std::launch::async, [&] { return first.Join(); });
  ASSERT_TRUE(second.Join().ok());
  ASSERT_TRUE(joining.get().ok());
  EXPECT_EQ(second.kernel(), first.kernel());
  for (const float round : {1.0f, 2.0f, 3.0f, 4.0f, 5.0f}) {
    Trainer one(1.0f * round);
    Trainer two(3.0f * round);
    auto other = std::async(std::launch::async, [&] {
      return second.worker().AverageGradients(two.tensors());
    });
    const Status status = first.worker().AverageGradients(one.tensors());
    ASSERT_TRUE(status.ok()) << status.error().message;
    ASSERT_TRUE(other.get().ok());
    EXPECT_FLOAT_EQ(one.kernel()[10], 2.0f * round);
    EXPECT_EQ(one.kernel(), two.kernel());
    EXPECT_EQ(one.bias(), two.bias());
  }
}

TEST(Worker, ANotFiniteGradientIsAnErrorOfThisCall) {
  const auto aggregator = StartAggregator();
  const std::string settings = At(*aggregator) + "size=2 policy=gradient ";
  Trainer first(1.0f);
  Trainer second(2.0f);
  ASSERT_TRUE(first.Begin(settings + "rank=0").ok());
  ASSERT_TRUE(second.Begin(settings + "rank=1").ok());
  auto joining = std::async(std::launch::async, [&] { return first.Join(); });
  ASSERT_TRUE(second.Join().ok());
  ASSERT_TRUE(joining.get().ok());
  Trainer gradient(1.0f);
  gradient.bias()[3] = std::numeric_limits<float>::infinity();
  const Status status = first.worker().AverageGradients(gradient.tensors());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kNotFinite);
}

TEST(Worker, AloneGradientsOnlyGetTheirMomentum) {
  Trainer trainer(1.0f);
  ASSERT_TRUE(trainer.Begin("policy=gradient momentum=0.5").ok());
  ASSERT_TRUE(trainer.Join().ok());
  for (const float expected : {1.0f, 1.5f, 1.75f}) {
    Trainer gradient(1.0f);
    ASSERT_TRUE(trainer.worker().AverageGradients(gradient.tensors()).ok());
    EXPECT_FLOAT_EQ(gradient.kernel()[0], expected);
  }
}

TEST(Worker, AnInterruptEndsAWaitAtOnce) {
  const auto aggregator = StartAggregator();
  Trainer trainer(1.0f);
  // Rank 0, which brings the weights, never comes.
  ASSERT_TRUE(trainer.Begin(At(*aggregator) + "rank=1 size=2").ok());
  auto waiting = std::async(std::launch::async, [&] {
    return trainer.worker().Joined(trainer.tensors(), milliseconds(50'000));
  });
  trainer.worker().Interrupt();
  ASSERT_EQ(waiting.wait_for(std::chrono::seconds(30)),
            std::future_status::ready);
  const Result<bool> joined = waiting.get();
  EXPECT_TRUE(joined.ok() && !*joined);
}

TEST(Worker, SaysWhomItWaitedForWhenPatienceEnds) {
  Trainer trainer(1.0f);
  Result<WorkerOptions> options =
      WorkerOptions::Parse("aggregator=127.0.0.1:1 patience=0.3");
  ASSERT_TRUE(options.ok());
  ASSERT_TRUE(trainer.BeginWith(*options).ok());
  const Status status = trainer.Join();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kTimedOut);
  EXPECT_NE(status.error().message.find("127.0.0.1:1"), std::string::npos)
      << status.error().message;
}

TEST(Worker, SeveralWorkersWithoutAnAggregatorAreAMistake) {
  Trainer trainer(1.0f);
  const Status status = trainer.Begin("rank=0 size=2");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("TL_AGGREGATOR"), std::string::npos);
}

TEST(Worker, JobsBesideAJobHaveACentreOfTheirOwn) {
  const auto aggregator = StartAggregator();
  Trainer main(1.0f);
  ASSERT_TRUE(main.Begin(At(*aggregator) + "rank=0 job=train").ok());
  ASSERT_TRUE(main.Join().ok());
  for (int i = 2; i < 6; ++i) {
    Trainer beside(static_cast<float>(i));
    const std::string job = "train/" + std::to_string(i);
    ASSERT_TRUE(beside.Begin(At(*aggregator) + "rank=0 job=" + job).ok());
    ASSERT_TRUE(beside.Join().ok());
    EXPECT_EQ(beside.kernel()[0], static_cast<float>(i));
    ASSERT_TRUE(beside.worker().Finish(beside.tensors(), false).ok());
  }
  Trainer stranger(3.0f);
  ASSERT_TRUE(stranger.Begin(At(*aggregator) + "rank=0 job=training").ok());
  const Status refused = stranger.Join();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().message.find("serves job 'train'"),
            std::string::npos)
      << refused.error().message;
}

TEST(Worker, AnEmbeddedAggregatorServesOthersAndOutlivesItsWorker) {
  // A free port, as far as one can know.
  const auto port = StartAggregator()->endpoints().front().port;
  const std::string where = "127.0.0.1:" + std::to_string(port);
  Trainer second(2.0f);
  {
    Trainer first(1.0f);
    ASSERT_TRUE(first.Begin("embed=" + where + " rank=0 size=2").ok());
    ASSERT_TRUE(first.Join().ok());
    ASSERT_TRUE(second.Begin("aggregator=" + where + " rank=1 size=2").ok());
    ASSERT_TRUE(second.Join().ok());
    EXPECT_EQ(second.kernel()[0], 1.0f);
    ASSERT_TRUE(first.worker().Finish(first.tensors(), false).ok());
  }
  ASSERT_TRUE(second.worker().Pull(second.tensors()).ok());
  ASSERT_TRUE(second.worker().Finish(second.tensors(), false).ok());
  StopEmbeddedAggregators(milliseconds(60'000), [] { return false; });
}

}  // namespace
}  // namespace tensorlightning
