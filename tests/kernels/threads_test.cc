// Kernels on several threads at once, each with its own shard and workspace, as
// a sharded exchange runs them; what they share is only read. Runs under TSan.
#include <gtest/gtest.h>

#include <thread>

#include "kernels/exchange.h"
#include "kernels/worker_state.h"
#include "tests/kernels/data.h"

namespace tensorlightning {
namespace {

using testing::BitsOf;
using testing::Fill;
using testing::Make;

constexpr size_t kThreads = 4;
constexpr size_t kEntries = 70000;
const Compression kCompression{SelectionRule::ChunkTopK(0.02),
                               ValueCode::kBits4};

std::vector<std::byte> Push(size_t shard) {
  std::vector<float> x = Make(Fill::kNormal, kEntries, shard);
  const auto state = MakeWorkerState(Place::kGpu, kEntries);  // Falls back.
  EXPECT_TRUE(state->Load(Make(Fill::kNormal, kEntries, shard + 100)).ok());
  std::vector<std::byte> out(kCompression.MaxBytes(kEntries));
  const auto emitted = state->Step(x.data(), {0.3f, 0.3f}, kCompression, out);
  EXPECT_TRUE(emitted.ok());
  out.resize(emitted->bytes);
  return out;
}

template <typename Work>
void OnThreads(Work work) {
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&work, t] { work(t); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, GiveWhatOneThreadGives) {
  std::vector<std::vector<std::byte>> pushes(kThreads);
  OnThreads([&](size_t t) { pushes[t] = Push(t); });
  for (size_t t = 0; t < kThreads; ++t) EXPECT_EQ(pushes[t], Push(t));
}

TEST(Threads, ReadOneMessageTogether) {
  const std::vector<std::byte> push = Push(1);
  const auto message = Message::Parse(push, kEntries);
  ASSERT_TRUE(message.ok());
  std::vector<std::vector<float>> sums(kThreads, std::vector<float>(kEntries));
  OnThreads([&](size_t t) { DecodeAdd(*message, sums[t], 1.0f); });
  for (size_t t = 1; t < kThreads; ++t) {
    EXPECT_EQ(BitsOf(sums[t]), BitsOf(sums[0]));
  }
}

}  // namespace
}  // namespace tensorlightning
