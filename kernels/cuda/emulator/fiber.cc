#include "kernels/cuda/emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <new>
#include <utility>

#include "kernels/cuda/emulator/sanitizers.h"

namespace tensorlightning::cuda::emulator {
namespace {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

// Sanitizers' frames are several times as large. Untouched pages cost nothing.
constexpr size_t kStackBytes = 256 << 10;
// Stacks begin at different offsets, or their hot ends would all compete for
// the same few sets of the caches.
constexpr size_t kColours = 61;
constexpr size_t kColourBytes = 448;
constexpr unsigned kNoSync = 1;  // __tsan_switch_to_fiber_no_sync

size_t GuardBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

struct Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<FiberSet>> free;
};

}  // namespace

Fiber::Fiber(size_t number) : colour_(number % kColours) {
  void* mapping =
      mmap(nullptr, GuardBytes() + kStackBytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mprotect(mapping, GuardBytes(), PROT_NONE);
  stack_ = static_cast<char*>(mapping) + GuardBytes();
  if (TsanActive()) tsan_fiber_ = __tsan_create_fiber(0);
}

Fiber::~Fiber() {
  if (tsan_fiber_ != nullptr) __tsan_destroy_fiber(tsan_fiber_);
  munmap(stack_ - GuardBytes(), GuardBytes() + kStackBytes);
}

void Fiber::Start(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  if (context_ == nullptr) {
    const size_t unused = colour_ * kColourBytes;
    context_ = make_fcontext(stack_ + kStackBytes - unused,
                             kStackBytes - unused, &Fiber::Main);
  }
}

void Fiber::Resume() {
  void* fake_stack = nullptr;
  if (AsanActive()) {
    __sanitizer_start_switch_fiber(&fake_stack, stack_, kStackBytes);
  }
  if (tsan_fiber_ != nullptr) {
    tsan_caller_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_fiber_, kNoSync);
  }
  context_ = jump_fcontext(context_, this).fctx;
  if (AsanActive()) {
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
  }
}

void Fiber::Suspend() {
  void* fake_stack = nullptr;
  if (AsanActive()) {
    __sanitizer_start_switch_fiber(&fake_stack, caller_stack_,
                                   caller_stack_bytes_);
  }
  if (tsan_fiber_ != nullptr) __tsan_switch_to_fiber(tsan_caller_, kNoSync);
  caller_ = jump_fcontext(caller_, nullptr).fctx;
  if (AsanActive()) {
    __sanitizer_finish_switch_fiber(fake_stack, &caller_stack_,
                                    &caller_stack_bytes_);
  }
}

void Fiber::Main(transfer_t transfer) noexcept {
  Fiber& self = *static_cast<Fiber*>(transfer.data);
  if (AsanActive()) {
    __sanitizer_finish_switch_fiber(nullptr, &self.caller_stack_,
                                    &self.caller_stack_bytes_);
  }
  self.caller_ = transfer.fctx;
  // One context for every thread that the fiber will ever run: making ASan's
  // stack for use after return anew each time would cost 30 times as much.
  for (;;) {
    self.entry_(self.argument_);
    self.Suspend();
  }
}

void Fiber::Abandon(void* cell) {
  context_ = nullptr;
  // The frames left behind never unpoison their red zones, nor tell TSan that
  // they returned.
  if (AsanActive()) __asan_unpoison_memory_region(stack_, kStackBytes);
  if (tsan_fiber_ != nullptr) {
    void* const caller = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_fiber_, kNoSync);
    Release(cell);
    __tsan_switch_to_fiber(caller, kNoSync);
    __tsan_destroy_fiber(tsan_fiber_);
    tsan_fiber_ = __tsan_create_fiber(0);
  }
}

FiberSet::Lease FiberSet::Take(size_t fibers) {
  auto& pool = Only<Pool>();
  std::unique_ptr<FiberSet> set;
  {
    const std::lock_guard lock(pool.mutex);
    if (!pool.free.empty()) {
      set = std::move(pool.free.back());
      pool.free.pop_back();
    }
  }
  if (set == nullptr) set = std::make_unique<FiberSet>();
  while (set->fibers_.size() < fibers) {
    set->fibers_.push_back(std::make_unique<Fiber>(set->fibers_.size()));
  }
  return Lease(set.release());
}

void FiberSet::GiveBack::operator()(FiberSet* set) const {
  auto& pool = Only<Pool>();
  const std::lock_guard lock(pool.mutex);
  pool.free.emplace_back(set);
}

}  // namespace tensorlightning::cuda::emulator
