#include "comm/client/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "comm/client/policy.h"

namespace tensorlightning {
namespace {

struct Model {
  explicit Model(size_t entries) : values(entries, 1.0f) {}
  Tensors tensors() const { return spans; }

  std::vector<float> values;
  std::vector<std::span<float>> spans{std::span(values)};
};

// In how many of `steps` steps an exchange is due, the model rotated by `angle`
// at each: its norm never changes.
int CountDue(Schedule& schedule, int steps, double angle) {
  Model model(2);
  int due = 0;
  for (int i = 1; i <= steps; ++i) {
    model.values = {static_cast<float>(std::cos(angle * i)),
                    static_cast<float>(std::sin(angle * i))};
    model.spans = {std::span(model.values)};
    if (!schedule.Due(model.tensors(), 1)) continue;
    schedule.Started(model.tensors());
    ++due;
  }
  return due;
}

std::unique_ptr<OnChange> Make(OnChange::Settings settings) {
  return std::move(*OnChange::Make(settings));
}

TEST(Every, IsDueEachNthStep) {
  Every every(10);
  EXPECT_EQ(CountDue(every, 100, 0.0), 10);
}

TEST(Every, StaysDueUntilAnExchangeStarts) {
  Every every(3);
  const Model model(1);
  EXPECT_FALSE(every.Due(model.tensors(), 1));
  EXPECT_FALSE(every.Due(model.tensors(), 1));
  EXPECT_TRUE(every.Due(model.tensors(), 1));
  EXPECT_TRUE(every.Due(model.tensors(), 1));
  every.Started(model.tensors());
  EXPECT_FALSE(every.Due(model.tensors(), 1));
}

TEST(OnChange, TalksTheMoreTheModelMoves) {
  const OnChange::Settings settings{
      .share = 0.5, .shortest = 1, .longest = 1000, .warm_up = 0};
  const int fast = CountDue(*Make(settings), 200, 0.2);
  const int slow = CountDue(*Make(settings), 200, 0.02);
  EXPECT_GT(fast, 5 * slow);
  EXPECT_GT(slow, 2);
}

TEST(OnChange, SeesRotationThoughTheNormStaysTheSame) {
  const OnChange::Settings settings{
      .share = 0.1, .shortest = 1, .longest = 1'000'000, .warm_up = 0};
  EXPECT_GT(CountDue(*Make(settings), 100, 0.05), 10);
  EXPECT_EQ(CountDue(*Make(settings), 100, 0.0), 0) << "standing still";
}

TEST(OnChange, KeepsTheShortestAndTheLongestGap) {
  const OnChange::Settings settings{
      .share = 0.01, .shortest = 5, .longest = 20, .warm_up = 0};
  EXPECT_EQ(CountDue(*Make(settings), 100, 1.0), 20);
  EXPECT_EQ(CountDue(*Make(settings), 100, 0.0), 5);
}

TEST(OnChange, TalksAlwaysWhileWarmingUp) {
  const OnChange::Settings settings{
      .share = 0.5, .shortest = 2, .longest = 1000, .warm_up = 50};
  EXPECT_EQ(CountDue(*Make(settings), 100, 0.0), 25);
}

TEST(OnChange, SamplesLargeModelsOverAllTensors) {
  auto schedule = Make({.share = 0.1, .shortest = 1, .longest = 1000});
  std::vector<float> large(300'000, 1.0f);
  std::vector<float> small(200'001, 1.0f);
  const std::vector<std::span<float>> spans{large, small};
  EXPECT_FALSE(schedule->Due(spans, 1));
  // Only the second one moves.
  for (float& value : small) value = 2.0f;
  EXPECT_TRUE(schedule->Due(spans, 1));
}

TEST(OnChange, RefusesSettingsThatMakeNoSense) {
  EXPECT_FALSE(OnChange::Make({.share = 0.0}).ok());
  EXPECT_FALSE(OnChange::Make({.share = 0.1, .shortest = 0}).ok());
  EXPECT_FALSE(
      OnChange::Make({.share = 0.1, .shortest = 9, .longest = 8}).ok());
}

TEST(Policy, CoefficientsFollowTheNumberOfWorkers) {
  EXPECT_FLOAT_EQ(Policy::Elastic(0.9).For(3).push, 0.3f);
  EXPECT_FLOAT_EQ(Policy::Elastic(0.9).For(3).pull, 0.3f);
  EXPECT_FLOAT_EQ(Policy::Local().For(4).push, 0.25f);
  EXPECT_FLOAT_EQ(Policy::Local().For(4).pull, 1.0f);
  EXPECT_FLOAT_EQ(Policy::Elastic(0.9).For(1).push, 0.45f);
  EXPECT_FLOAT_EQ(Policy::Local().For(1).push, 1.0f);
}

TEST(Policy, RefusesWhatCantTravel) {
  EXPECT_TRUE(Policy().Check().ok());
  EXPECT_FALSE(Policy::FromName("telepathic").ok());
  EXPECT_FALSE(Policy::Elastic(1.5).Check().ok());
  Policy policy;
  policy.up.rule = SelectionRule::GlobalTopK(0.1);
  EXPECT_FALSE(policy.Check().ok());
  policy.up.rule = SelectionRule::ChunkTopK(0.0);
  EXPECT_FALSE(policy.Check().ok());
}

}  // namespace
}  // namespace tensorlightning
