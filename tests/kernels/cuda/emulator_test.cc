// The CUDA emulator: correct kernels give correct results under every schedule,
// wrong ones are reported. The race checks need TSan (make tsan); other builds
// say so and run the correct variants only.
#include "kernels/cuda/emulator/emulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/cuda/emulator_kernels.h"

namespace tensorlightning::cuda {
namespace {

using emulator::Configure;
using emulator::ErrorKind;
using emulator::RaceDetection;

constexpr size_t kThreads = 256;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAsan = true;
#else
constexpr bool kAsan = false;
#endif

std::vector<int> RandomInts(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> x(n);
  for (int& v : x) v = static_cast<int>(random() % 1000);
  return x;
}

// Every schedule: workers × seed; 0 is the plain order.
class Schedules : public testing::TestWithParam<std::tuple<int, uint64_t>> {
 protected:
  void SetUp() override {
    const auto [workers, seed] = GetParam();
    Configure({.workers = workers, .seed = seed});
  }
  void TearDown() override { Configure({}); }
};

TEST_P(Schedules, BlockSumsAreExact) {
  const std::vector<int> x = RandomInts(5 * kThreads + 17, 1);
  std::vector<int> sums;
  ASSERT_EQ(BlockSums(x, true, &sums), cudaSuccess);
  ASSERT_EQ(sums.size(), 6u);
  for (size_t b = 0; b < sums.size(); ++b) {
    const int* const end = &x[0] + std::min((b + 1) * kThreads, x.size());
    EXPECT_EQ(sums[b], std::accumulate(&x[b * kThreads], end, 0));
  }
}

TEST_P(Schedules, WarpScanAddsLanesBefore) {
  const std::vector<int> x = RandomInts(3 * kThreads, 2);
  std::vector<int> sums;
  ASSERT_EQ(WarpScan(x, &sums), cudaSuccess);
  int sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum = i % 32 == 0 ? x[i] : sum + x[i];
    ASSERT_EQ(sums[i], sum) << i;
  }
}

TEST_P(Schedules, CompactionKeepsOrder) {
  for (const int threshold : {-1, 500, 990, 1000}) {
    const std::vector<int> x = RandomInts(9 * kThreads + 1, 3);
    std::vector<uint32_t> expected;
    for (uint32_t i = 0; i < x.size(); ++i) {
      if (x[i] > threshold) expected.push_back(i);
    }
    std::vector<uint32_t> positions;
    ASSERT_EQ(Compact(x, threshold, &positions), cudaSuccess);
    EXPECT_EQ(positions, expected);
  }
}

TEST_P(Schedules, HistogramCountsAll) {
  std::vector<uint32_t> x(3000);
  std::iota(x.begin(), x.end(), 0u);
  std::vector<uint32_t> expected(64);
  for (const uint32_t v : x) ++expected[v % 64];
  std::vector<uint32_t> bins;
  ASSERT_EQ(Histogram(x, &bins), cudaSuccess);
  EXPECT_EQ(bins, expected);
}

TEST_P(Schedules, LanesExchangeThroughSharedMemory) {
  const std::vector<int> x = RandomInts(4 * kThreads, 4);
  std::vector<int> rotated;
  ASSERT_EQ(RotateLanes(x, true, &rotated), cudaSuccess);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(rotated[i], x[i / 32 * 32 + (i + 1) % 32]) << i;
  }
}

TEST_P(Schedules, AtomicsMeetAcrossBlocks) {
  uint32_t largest = 0;
  ASSERT_EQ(LargestBlock(9, true, &largest), cudaSuccess);
  EXPECT_EQ(largest, 8u);
}

INSTANTIATE_TEST_SUITE_P(Emulator, Schedules,
                         testing::Combine(testing::Values(1, 2, 3),
                                          testing::Range<uint64_t>(0, 8)));

TEST(Emulator, CollectivesFollowTheProgrammingGuide) {
  std::vector<uint32_t> words;
  ASSERT_EQ(Collectives(&words), cudaSuccess);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    SCOPED_TRACE(lane);
    const uint32_t* w = &words[lane * 10];
    const uint32_t segment = lane / 8 * 8;
    EXPECT_EQ(w[0], lane < 16 ? 0x9249u : 0x49240000u);
    EXPECT_EQ(w[1], 1u);
    EXPECT_EQ(w[2], lane < 16 ? 1u : 0u);
    EXPECT_EQ(w[3], segment + 5);
    EXPECT_EQ(w[4], lane % 8 < 3 ? lane : lane - 3);
    EXPECT_EQ(w[5], lane % 8 > 4 ? lane : lane + 3);
    EXPECT_EQ(w[6], (lane ^ 12u) < segment + 8 ? lane ^ 12u : lane);
    EXPECT_EQ(w[7], 1u << 8);
    EXPECT_EQ(w[8], 9u);
    EXPECT_EQ(w[9], 1u);
  }
}

TEST(Emulator, SharedMemoryIsGarbageInEveryBlock) {
  std::set<std::vector<uint32_t>> seen;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Configure({.seed = seed});
    std::vector<uint32_t> words;
    ASSERT_EQ(ReadUninitialised(&words), cudaSuccess);
    seen.emplace(words.begin(), words.begin() + 32);
    seen.emplace(words.begin() + 32, words.end());
  }
  Configure({});
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_EQ(seen.count(std::vector<uint32_t>(32, 0)), 0u);
}

TEST(Emulator, FreshDeviceMemoryIsGarbage) {
  uint64_t* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 16), cudaSuccess);
  uint64_t words[2] = {};
  ASSERT_EQ(cudaMemcpy(words, device, 16, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_NE(words[0], 0u);
  EXPECT_NE(words[0], words[1]);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST(Emulator, CopyChecksSidesAndBounds) {
  char* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 100), cudaSuccess);
  std::vector<char> host(200);
  EXPECT_EQ(cudaMemcpy(device, host.data(), 100, cudaMemcpyHostToDevice),
            cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device, host.data(), 101, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, host.data(), 100, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(host.data(), 0, 10), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(device + 50, 0, 51), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFree(host.data()), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(Emulator, CanLackDeviceOrMemory) {
  Configure({.devices = 0});
  int count = 77;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 77);
  Configure({.memory_bytes = 1000});
  void* device = nullptr;
  EXPECT_EQ(cudaMalloc(&device, 1001), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&device, 1000), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  Configure({});
  cudaGetLastError();
}

struct MistakeCase {
  Mistake mistake;
  ErrorKind kind;
  std::string text;  // in the report
};

class Mistakes : public testing::TestWithParam<MistakeCase> {};

TEST_P(Mistakes, AreReported) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::optional<emulator::Error> error;
    emulator::SetErrorHandler(
        [&](const emulator::Error& e) { error.emplace(e); });
    Configure({.seed = seed, .stall_limit = std::chrono::milliseconds(50)});
    // Only some orders of blocks make the spin endless.
    if (GetParam().mistake == Mistake::kSpinOnLaterBlock && seed != 0) continue;
    EXPECT_EQ(Make(GetParam().mistake), cudaErrorLaunchFailure);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind, GetParam().kind) << error->ToString();
    EXPECT_NE(error->ToString().find(GetParam().text), std::string::npos)
        << error->ToString();
    EXPECT_NE(error->ToString().find("emulator_kernels.cu:"), std::string::npos)
        << error->ToString();
    // The next launch is not affected.
    std::vector<uint32_t> words;
    EXPECT_EQ(Collectives(&words), cudaSuccess);
  }
  emulator::SetErrorHandler(nullptr);
  Configure({});
  cudaGetLastError();
}

INSTANTIATE_TEST_SUITE_P(
    Emulator, Mistakes,
    testing::Values(
        MistakeCase{Mistake::kThreadEndsBeforeBarrier,
                    ErrorKind::kDivergentBarrier, "1 of 64: has ended"},
        MistakeCase{Mistake::kBarrierInOneBranch, ErrorKind::kDivergentBarrier,
                    "32 of 64: waits at the __syncthreads"},
        MistakeCase{Mistake::kBarrierInBothBranches,
                    ErrorKind::kDivergentBarrier, "at another one than thread"},
        MistakeCase{Mistake::kLaneWaitsAtBarrier, ErrorKind::kDivergentBarrier,
                    "__syncwarp with mask 0xffffffff waits for thread (3,0,0)"},
        MistakeCase{Mistake::kLaneEndsBeforeShuffle, ErrorKind::kAbsentLane,
                    "waits for thread (9,0,0), which has ended"},
        MistakeCase{Mistake::kLanesThatDoNotExist, ErrorKind::kAbsentLane,
                    "lane 18, which the block does not have"},
        MistakeCase{Mistake::kDifferentCollectives, ErrorKind::kAbsentLane,
                    "which waits at the __ballot_sync"},
        MistakeCase{Mistake::kMaskWithoutSelf, ErrorKind::kMaskWithoutSelf,
                    "__syncwarp: the mask does not name"},
        MistakeCase{Mistake::kShuffleFromOutsideMask,
                    ErrorKind::kLaneOutsideMask, "reads lane 20"},
        MistakeCase{Mistake::kWidthOfThree, ErrorKind::kBadShuffleWidth,
                    "width 3"},
        MistakeCase{Mistake::kSharedIndexTooLarge,
                    ErrorKind::kSharedOutOfBounds, "of 32 in"},
        MistakeCase{Mistake::kSpinOnLaterBlock, ErrorKind::kStalled,
                    "(1 resident)"},
        MistakeCase{Mistake::kTrap, ErrorKind::kTrap, "thread (3,0,0)"}),
    [](const auto& test) { return "Case" + std::to_string(test.index); });

TEST(Emulator, ErrorHandlerMayThrow) {
  emulator::SetErrorHandler([](const emulator::Error& e) { throw e.kind; });
  EXPECT_THROW(Make(Mistake::kTrap), ErrorKind);
  emulator::SetErrorHandler(nullptr);
}

TEST(Emulator, RefusesImpossibleShapes) {
  EXPECT_EQ(LargestBlock(0, true, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
}

class EmulatorDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    // A child that starts afresh: sanitizers dislike forks with threads.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    Configure({.workers = 1, .seed = 1});
  }
  void TearDown() override { Configure({}); }

  // Runs `racy` in a child, where TSan must report a race and set its exit
  // code.
  template <class Racy>
  void ExpectRace(Racy racy) {
    if (!RaceDetection()) {
      std::printf("The race check runs under TSan only (make tsan).\n");
      return;
    }
    EXPECT_EXIT(
        {
          racy();
          std::exit(0);
        },
        testing::ExitedWithCode(66), "ThreadSanitizer: data race");
  }
};

TEST_F(EmulatorDeathTest, MissingSyncthreadsIsRace) {
  const std::vector<int> x = RandomInts(kThreads, 5);
  std::vector<int> out;
  EXPECT_EQ(BlockSums(x, true, &out), cudaSuccess);
  ExpectRace([&] { BlockSums(x, false, &out); });
}

TEST_F(EmulatorDeathTest, MissingSyncwarpIsRace) {
  const std::vector<int> x = RandomInts(kThreads, 6);
  std::vector<int> out;
  EXPECT_EQ(RotateLanes(x, true, &out), cudaSuccess);
  ExpectRace([&] { RotateLanes(x, false, &out); });
}

TEST_F(EmulatorDeathTest, PlainWritesOfTwoBlocksAreRace) {
  uint32_t largest = 0;
  EXPECT_EQ(LargestBlock(2, true, &largest), cudaSuccess);
  ExpectRace([&] { LargestBlock(2, false, &largest); });
}

TEST_F(EmulatorDeathTest, AsanSeesReadPastDeviceMemory) {
  if (!kAsan) {
    std::printf("The bounds check of device memory runs under ASan only.\n");
    return;
  }
  EXPECT_DEATH(ReadPastEnd(), "AddressSanitizer: heap-buffer-overflow");
}

TEST_F(EmulatorDeathTest, AbortsWithReportByDefault) {
  EXPECT_DEATH(Make(Mistake::kTrap),
               "CUDA emulator: .*launched at .*emulator_kernels.cu:.*block "
               ".*thread .3,0,0.*__trap");
}

}  // namespace
}  // namespace tensorlightning::cuda
