// The GPU's WorkerState. Built twice: with the emulator, where it always has a
// device unless it is told otherwise, and with the real CUDA runtime, where it
// runs on the GPU if there is one and falls back to the CPU if not.
#include "kernels/worker_state.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <iostream>

#include "tests/kernels/data.h"
#include "tests/kernels/worker_state_rounds.h"

#ifdef TL_CUDA_EMULATOR
#include "kernels/cuda/emulator/emulator.h"
#endif

namespace tensorlightning {
namespace {

bool HasDevice() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

Result<Emitted> OnDevice(std::vector<float>& x, auto step) {
  float* memory = nullptr;
  const size_t bytes = x.size() * sizeof(float);
  EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), bytes), cudaSuccess);
  cudaMemcpy(memory, x.data(), bytes, cudaMemcpyHostToDevice);
  Result<Emitted> result = step(memory);
  cudaMemcpy(x.data(), memory, bytes, cudaMemcpyDeviceToHost);
  cudaFree(memory);
  return result;
}

TEST(GpuWorkerState, GivesTheBitsOfTheCpuOrFallsBackToIt) {
  if (HasDevice()) {
    const auto state = MakeWorkerState(Place::kGpu, 9001);
    ASSERT_EQ(state->place(), Place::kGpu);
    testing::ExchangeRounds(*state, [](std::vector<float>& x, auto step) {
      return OnDevice(x, step);
    });
    return;
  }
  std::cout << "NOT TESTED on a GPU: this machine has none\n";
  ::testing::internal::CaptureStderr();
  const auto state = MakeWorkerState(Place::kGpu, 9001);
  MakeWorkerState(Place::kGpu, 9001);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(state->place(), Place::kCpu);
  EXPECT_EQ(said.rfind("tensorlightning: no GPU to be had (CUDA: ", 0), 0u)
      << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  testing::ExchangeRounds(
      *state, [](std::vector<float>& x, auto step) { return step(x.data()); });
}

#ifdef TL_CUDA_EMULATOR
TEST(GpuWorkerState, FallsBackWhenTheDeviceIsGone) {
  cuda::emulator::Options options = cuda::emulator::CurrentOptions();
  options.devices = 0;
  cuda::emulator::Configure(options);
  EXPECT_EQ(MakeWorkerState(Place::kGpu, 10)->place(), Place::kCpu);
  options.devices = 1;
  options.memory_bytes = 64;
  cuda::emulator::Configure(options);
  EXPECT_EQ(MakeWorkerState(Place::kGpu, 1000)->place(), Place::kCpu)
      << "too little memory on the device is a reason too";
  cuda::emulator::Configure({});
}
#endif

}  // namespace
}  // namespace tensorlightning
