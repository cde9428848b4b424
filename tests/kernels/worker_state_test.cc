#include "kernels/worker_state.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/data.h"
#include "tests/kernels/worker_state_rounds.h"

namespace tensorlightning {
namespace {

TEST(WorkerState, KeepsTheSameViewAsTheAggregator) {
  const auto state = MakeWorkerState(Place::kCpu, 9001);
  ASSERT_EQ(state->place(), Place::kCpu);
  testing::ExchangeRounds(
      *state, [](std::vector<float>& x, auto step) { return step(x.data()); });
}

TEST(WorkerState, FallsBackToTheCpuAndSaysSoOnce) {
  // This test is not linked with CUDA.
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(MakeWorkerState(Place::kGpu, 10)->place(), Place::kCpu);
  EXPECT_EQ(MakeWorkerState(Place::kGpu, 10)->place(), Place::kCpu);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "tensorlightning: no GPU to be had (this build has no CUDA in it); "
            "the CPU does its work\n");
}

TEST(WorkerState, RefusesWrongSizesAndNotFiniteViews) {
  const auto state = MakeWorkerState(Place::kCpu, 10);
  const std::vector<float> view(9);
  EXPECT_EQ(state->Load(view).error().message,
            "the view has 9 entries, the worker's model 10");
  std::vector<float> bad(10);
  bad[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(state->Load(bad).error().code, ErrorCode::kNotFinite);
  std::vector<float> copy(11);
  EXPECT_FALSE(state->ReadView(copy).ok());
}

}  // namespace
}  // namespace tensorlightning
