// What an exchange allocates, once everything has grown to its size: nothing
// that depends on the model, only the frames of small coroutines.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "tests/comm/client/workers.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<size_t> bytes{0};
std::atomic<size_t> largest{0};

void* Allocate(size_t size) {
  if (counting.load(std::memory_order_relaxed)) {
    bytes.fetch_add(size, std::memory_order_relaxed);
    size_t before = largest.load(std::memory_order_relaxed);
    while (before < size && !largest.compare_exchange_weak(before, size)) {
    }
  }
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace tensorlightning::testing {
namespace {

TEST(Allocations, AnExchangeTakesNoMemoryThatDependsOnTheModel) {
  const auto aggregator = StartAggregator();
  Worker worker(1);
  Worker other(2);
  ASSERT_TRUE(worker.Start(OptionsFor(*aggregator)).ok());
  ASSERT_TRUE(other.Start(OptionsFor(*aggregator)).ok());
  const auto exchange = [&] {
    for (Worker* each : {&worker, &other}) {
      each->Move(0.01f);
      each->Exchange();
    }
  };
  for (int i = 0; i < 30; ++i) exchange();
  constexpr size_t kExchanges = 30;
  counting.store(true);
  for (size_t i = 0; i < kExchanges; ++i) exchange();
  counting.store(false);
  std::printf("%zu bytes for each of %zu exchanges, at most %zu at once\n",
              bytes.load() / (2 * kExchanges), 2 * kExchanges, largest.load());
  // A code of the larger shard is 5 KB, its floats a megabyte.
  EXPECT_LT(largest.load(), 2048u);
}

}  // namespace
}  // namespace tensorlightning::testing
