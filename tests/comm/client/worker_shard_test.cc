#include "comm/client/worker_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "kernels/decode.h"

namespace tensorlightning {
namespace {

constexpr size_t kEntries = 5000;  // More than a chunk, and no multiple.

std::vector<float> Noise(uint32_t seed, size_t entries = kEntries) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(entries);
  for (float& value : values) value = normal(random);
  return values;
}

class Pushes {
 public:
  explicit Pushes(const Policy& policy, bool dense = false)
      : shard_(MakeWorkerShard(policy, {0, kEntries, dense},
                               std::make_shared<WorkerScratch>())),
        out_(shard_->MaxPushBytes()) {}

  // What was sent, as a dense vector; `staged` as the shard leaves it.
  std::vector<float> Step(std::vector<float>& staged, uint32_t live) {
    std::vector<float> sent(kEntries);
    const Result<Emitted> emitted = shard_->Step(staged, live, out_);
    EXPECT_TRUE(emitted.ok()) << emitted.error().message;
    if (!emitted.ok()) return sent;
    const Result<Message> message =
        Message::Parse(std::span(out_).first(emitted->bytes), kEntries);
    EXPECT_TRUE(message.ok());
    DecodeAdd(*message, sent, 1.0f);
    bytes_ = emitted->bytes;
    return sent;
  }

  // The same, as the last one.
  std::vector<float> Last(std::vector<float>& staged, uint32_t live) {
    shard_->SendEverything();
    out_.resize(shard_->MaxPushBytes());
    return Step(staged, live);
  }

  // Of the last push.
  size_t bytes() const { return bytes_; }
  WorkerShard& shard() { return *shard_; }
  std::span<std::byte> out() { return out_; }

 private:
  std::unique_ptr<WorkerShard> shard_;
  std::vector<std::byte> out_;
  size_t bytes_ = 0;
};

TEST(AveragingShard, AloneItMirrorsTheModelAndChangesNothingOfIt) {
  Pushes pushes(Policy::Elastic());
  const std::vector<float> model = Noise(1);
  std::vector<float> centre(kEntries);
  ASSERT_TRUE(pushes.shard().Load(centre).ok());
  for (int i = 0; i < 300; ++i) {
    std::vector<float> staged = model;
    const std::vector<float> sent = pushes.Step(staged, 0);
    EXPECT_EQ(staged, std::vector<float>(kEntries)) << "a correction of zero";
    for (size_t j = 0; j < kEntries; ++j) centre[j] += sent[j];
  }
  double apart = 0.0;
  for (size_t j = 0; j < kEntries; ++j) {
    apart = std::max(apart, std::abs(double{model[j]} - centre[j]));
  }
  EXPECT_LT(apart, 0.5) << "the centre must have followed";
}

// The share of dense averaging: neither pruned, nor more than that.
class LastPush : public ::testing::TestWithParam<ValueCode> {};

TEST_P(LastPush, IsAllOfThisStepsShareInEightBitsAtLeastAndNothingElse) {
  Policy policy = Policy::Elastic();
  policy.up = {SelectionRule::ChunkTopK(0.01), GetParam()};
  Pushes pushes(policy);
  ASSERT_TRUE(pushes.shard().Load(std::vector<float>(kEntries)).ok());
  for (uint32_t i = 0; i < 5; ++i) {
    std::vector<float> staged = Noise(10 + i);
    pushes.Step(staged, 2);
  }
  std::vector<float> view(kEntries);
  ASSERT_TRUE(pushes.shard().ReadView(view).ok());
  const std::vector<float> model = Noise(20);
  std::vector<float> share(kEntries);
  float largest = 0.0f;
  for (size_t j = 0; j < kEntries; ++j) {
    share[j] = static_cast<float>(policy.For(2).push * (model[j] - view[j]));
    largest = std::max(largest, std::abs(share[j]));
  }
  std::vector<float> staged = model;
  const uint32_t bits = std::max(8u, ValueBits(GetParam()));
  const std::vector<float> sent = pushes.Last(staged, 2);
  EXPECT_LT(pushes.bytes(), kEntries * (bits + 1) / 8);
  // A step of 8 bits: the largest may be off by that much, others by half.
  const double close = bits == 32 ? 1e-5 : largest / 128;
  for (size_t j = 0; j < kEntries; ++j) {
    ASSERT_NEAR(sent[j], share[j], close) << j;
  }
}

INSTANTIATE_TEST_SUITE_P(Values, LastPush,
                         ::testing::Values(ValueCode::kFloat32,
                                           ValueCode::kBits8, ValueCode::kBits4,
                                           ValueCode::kBits2));

// Who comes when it has gone finds this very model.
TEST(AveragingShard, TheLastPushOfAMirrorIsExact) {
  Policy policy = Policy::Elastic();
  policy.up = {SelectionRule::ChunkTopK(0.01), ValueCode::kBits2};
  Pushes pushes(policy);
  ASSERT_TRUE(pushes.shard().Load(std::vector<float>(kEntries)).ok());
  const std::vector<float> model = Noise(3);
  std::vector<float> staged = model;
  pushes.Last(staged, 0);
  std::vector<float> view(kEntries);
  ASSERT_TRUE(pushes.shard().ReadView(view).ok());
  EXPECT_EQ(view, model);
}

TEST(AveragingShard, WhatTheMirrorDidNotSendCountsOnceWhenOthersCome) {
  Policy policy = Policy::Local();
  policy.up = {SelectionRule::ChunkTopK(0.01), ValueCode::kFloat32};
  Pushes pushes(policy);
  std::vector<float> centre(kEntries);
  ASSERT_TRUE(pushes.shard().Load(centre).ok());
  const std::vector<float> model = Noise(2);
  std::vector<float> staged = model;
  const std::vector<float> first = pushes.Step(staged, 0);
  // Two workers, local: half of what is left of the difference is owed, and the
  // model restarts from the view. Nothing more, nothing less, is on its way.
  staged = model;
  std::vector<float> total = first;
  std::vector<float> sent = pushes.Step(staged, 2);
  std::vector<float> correction = staged;
  std::vector<float> x(kEntries);
  for (size_t j = 0; j < kEntries; ++j) x[j] = model[j] + correction[j];
  for (int i = 0; i < 200; ++i) {
    for (size_t j = 0; j < kEntries; ++j) total[j] += sent[j];
    staged = x;
    sent = pushes.Step(staged, 2);
    for (size_t j = 0; j < kEntries; ++j) x[j] += staged[j];
  }
  for (size_t j = 0; j < kEntries; ++j) {
    const float left = model[j] - first[j];
    EXPECT_NEAR(total[j], first[j] + left / 2, 1e-4) << j;
  }
}

TEST(AveragingShard, ANotFiniteModelIsNotMirrored) {
  Pushes pushes(Policy::Mirror());
  ASSERT_TRUE(pushes.shard().Load(std::vector<float>(kEntries)).ok());
  std::vector<float> staged = Noise(3);
  staged[77] = std::numeric_limits<float>::quiet_NaN();
  const Result<Emitted> emitted = pushes.shard().Step(staged, 4, pushes.out());
  ASSERT_FALSE(emitted.ok());
  EXPECT_EQ(emitted.error().code, ErrorCode::kNotFinite);
}

// u = m u + g, sent whole: what the optimizer would have added up by itself.
TEST(GradientShard, MomentumOfWhatIsSentWholeIsTheOptimizers) {
  Policy policy = Policy::Gradient(true, 0.9);
  policy.up = {SelectionRule::ChunkTopK(1.0), ValueCode::kFloat32};
  Pushes pushes(policy);
  std::vector<float> velocity(kEntries);
  for (uint32_t i = 0; i < 20; ++i) {
    std::vector<float> gradient = Noise(i);
    for (size_t j = 0; j < kEntries; ++j) {
      velocity[j] = 0.9f * velocity[j] + gradient[j];
    }
    EXPECT_EQ(pushes.Step(gradient, 2), velocity);
  }
}

TEST(GradientShard, MomentumStopsWhereItWasSent) {
  Policy policy = Policy::Gradient(true, 0.5);
  policy.up = {SelectionRule::ChunkTopK(0.01), ValueCode::kFloat32};
  Pushes pushes(policy);
  // One large entry in a chunk: it is sent at once, and once only.
  std::vector<float> gradient(kEntries, 0.001f);
  gradient[100] = 8.0f;
  EXPECT_FLOAT_EQ(pushes.Step(gradient, 2)[100], 8.0f);
  double later = 0.0;
  for (int i = 0; i < 10; ++i) {
    std::vector<float> small(kEntries, 0.001f);
    later += pushes.Step(small, 2)[100];
  }
  EXPECT_LT(later, 0.1) << "4 + 2 + 1 + ... would have followed";
}

TEST(GradientShard, NoGradientAtAllLeavesMomentumAlone) {
  Policy policy = Policy::Gradient(true, 0.5);
  policy.up = {SelectionRule::ChunkTopK(1.0), ValueCode::kFloat32};
  Pushes pushes(policy);
  std::vector<float> gradient(kEntries, 1.0f);
  EXPECT_FLOAT_EQ(pushes.Step(gradient, 2)[0], 1.0f);
  std::vector<float> none;
  EXPECT_FLOAT_EQ(pushes.Step(none, 2)[0], 0.0f);
  gradient.assign(kEntries, 1.0f);
  EXPECT_FLOAT_EQ(pushes.Step(gradient, 2)[0], 1.5f);
}

}  // namespace
}  // namespace tensorlightning
