#include "kernels/cuda/emulator/block.h"

#include <atomic>
#include <cstdlib>
#include <thread>
#include <utility>

#include "kernels/cuda/emulator/sanitizers.h"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace tensorlightning::cuda::emulator {
namespace internal {

constinit thread_local uint64_t block_serial = 0;

}  // namespace internal
namespace {

constinit thread_local BlockRunner* current = nullptr;
// Atomic operations between two forced switches, at most.
constexpr uint32_t kPreemptPeriod = 16;
constexpr uint32_t kRoundsPerStallCheck = 256;

}  // namespace

BlockRunner::BlockRunner(GridRun& grid)
    : grid_(grid),
      count_(grid.block.x * grid.block.y * grid.block.z),
      fibers_(FiberSet::Take(count_)),
      threads_(count_),
      warps_((count_ + kLanes - 1) / kLanes) {
  for (uint32_t t = 0; t < count_; ++t) indices_.push_back(ThreadIndex(t));
  round_.reserve(count_);
  ready_.reserve(count_);
  // This thread's TLS, where __shared__ lives, is fresh: CUDA threads come
  // after its creation.
  Release(fibers_->previous_cell());
  Release(fibers_->next_cell());
}

BlockRunner* BlockRunner::Current() { return current; }

void BlockRunner::Run(uint32_t block) {
  Begin(block);
  RunRounds();
  if (!grid_.failed && ended_ != count_) ReportStuck();
  End();
}

void BlockRunner::Begin(uint32_t block) {
  static std::atomic<uint64_t> serial{0};
  current = this;
  internal::block_serial = ++serial;
  random_ = Random(grid_.seed + block);
  blockDim = grid_.block;
  gridDim = grid_.grid;
  blockIdx = {block % grid_.grid.x, block / grid_.grid.x % grid_.grid.y,
              block / grid_.grid.x / grid_.grid.y};
  barrier_ = {};
  if (TsanActive()) {
    for (void*& cell : barrier_.cell) cell = std::malloc(sizeof(uint64_t));
  }
  ended_ = 0;
  ready_.clear();
  for (uint32_t t = 0; t < count_; ++t) {
    threads_[t] = {this, State::kReady, 0, {}};
    (*fibers_)[t].Start(&ThreadMain, &threads_[t]);
    ready_.push_back(t);
  }
  idle_rounds_ = 0;
}

void BlockRunner::End() {
  if (ended_ != count_) {
    for (uint32_t t = 0; t < count_; ++t) {
      if (threads_[t].state != State::kEnded) {
        (*fibers_)[t].Abandon(&grid_.end_cell);
      }
    }
    Acquire(&grid_.end_cell);
    for (Warp& warp : warps_) warp.Reset();
  }
  fibers_->NextBlock();
  for (void* cell : barrier_.cell) std::free(cell);
  current = nullptr;
  internal::block_serial = 0;
}

void BlockRunner::ThreadMain(void* thread) {
  Thread& self = *static_cast<Thread*>(thread);
  BlockRunner& block = *self.runner;
  Acquire(&block.grid_.begin_cell);
  Acquire(block.fibers_->previous_cell());
  block.grid_.work.body(block.grid_.work.context);
  Release(block.fibers_->next_cell());
  Release(&block.grid_.end_cell);
  self.state = State::kEnded;
  ++block.ended_;
  block.Progress();
}

void BlockRunner::RunRounds() {
  while (!ready_.empty()) {
    std::swap(round_, ready_);
    ready_.clear();
    if (grid_.options.seed != 0) random_.Shuffle(round_);
    const uint64_t before = progress_;
    for (const uint32_t t : round_) {
      running_ = t;
      threadIdx = indices_[t];
      (*fibers_)[t].Resume();
      // Relaxed: only to stop early.
      if (grid_.failed.load(std::memory_order_relaxed)) return;
    }
    if (progress_ != before) {
      grid_.progress.fetch_add(1, std::memory_order_relaxed);
      idle_rounds_ = 0;
    } else if (Stalled()) {
      return ReportStalled();
    }
  }
}

// Called after each round that only yielded: threads here work with atomics, or
// spin on another block's, which then deserves this core.
bool BlockRunner::Stalled() {
  if (idle_rounds_++ % kRoundsPerStallCheck != 0) {
    if (idle_rounds_ % 16 == 0) std::this_thread::yield();
    return false;
  }
  const auto now = std::chrono::steady_clock::now();
  const uint64_t progress = grid_.progress.load(std::memory_order_relaxed);
  if (idle_rounds_ == 1 || progress != seen_progress_) {
    seen_progress_ = progress;
    last_progress_ = now;
  }
  return now - last_progress_ > grid_.options.stall_limit;
}

void BlockRunner::MakeReady(uint32_t thread) {
  threads_[thread].state = State::kReady;
  ready_.push_back(thread);
}

void BlockRunner::Yield() {
  ready_.push_back(running_);
  Suspend();
}

void BlockRunner::Preempt() {
  if (--until_preempt_ != 0) return;
  until_preempt_ = grid_.options.seed == 0 ? kPreemptPeriod
                                           : 1 + random_.Below(kPreemptPeriod);
  Yield();
}

int BlockRunner::SyncThreads(bool predicate, const Source& source) {
  At(source);
  Barrier& barrier = barrier_;
  if (barrier.arrived == 0) {
    barrier.source = source;
    barrier.first = running_;
  } else if (barrier.source != source) {
    Fail(ErrorKind::kDivergentBarrier,
         "__syncthreads: this thread is at another one than " +
             Describe(barrier.first));
  }
  const uint32_t parity = barrier.generation % 2;
  // Once before and once after: accesses on either side are ordered against all
  // threads, and a thread that runs ahead uses the other cell.
  if (barrier.cell[parity] != nullptr) Release(barrier.cell[parity]);
  barrier.count += predicate ? 1 : 0;
  if (++barrier.arrived == count_) {
    barrier.result[parity] = std::exchange(barrier.count, 0);
    barrier.arrived = 0;
    ++barrier.generation;
    Progress();
    for (uint32_t t = 0; t < count_; ++t) {
      if (threads_[t].state == State::kBarrier) MakeReady(t);
    }
  } else {
    threads_[running_].state = State::kBarrier;
    Suspend();
  }
  if (barrier.cell[parity] != nullptr) Acquire(barrier.cell[parity]);
  return barrier.result[parity];
}

uint64_t BlockRunner::Meet(internal::Collective kind, unsigned mask,
                           const internal::Contribution& mine,
                           const Source& source) {
  At(source);
  const uint32_t first = running_ / kLanes * kLanes;
  const int lane = static_cast<int>(running_ - first);
  Warp& warp = warps_[running_ / kLanes];
  if ((mask & LaneMask()) == 0) {
    Fail(ErrorKind::kMaskWithoutSelf,
         std::string(Name(kind)) + ": the mask does not name the calling lane");
  }
  if (mine.width < 1 || mine.width > kLanes ||
      (mine.width & (mine.width - 1)) != 0) {
    Fail(ErrorKind::kBadShuffleWidth,
         std::string(Name(kind)) + ": width " + std::to_string(mine.width));
  }
  const Warp::Arrival arrival = warp.Arrive(lane, kind, mask, mine);
  if (arrival.bad_source) {
    Fail(ErrorKind::kLaneOutsideMask,
         std::string(Name(kind)) + ": lane " +
             std::to_string(arrival.bad_source->reader) + " reads lane " +
             std::to_string(arrival.bad_source->source) +
             ", which the mask does not name");
  }
  if (arrival.complete) {
    Progress();
    for (uint32_t i = 0; i < kLanes && first + i < count_; ++i) {
      Thread& other = threads_[first + i];
      if (other.state == State::kMeeting && other.meeting == arrival.meeting) {
        MakeReady(first + i);
      }
    }
  } else {
    threads_[running_].state = State::kMeeting;
    threads_[running_].meeting = arrival.meeting;
    Suspend();
  }
  return warp.Leave(lane, arrival.meeting);
}

void BlockRunner::Fail(ErrorKind kind, std::string message) {
  Report(running_, kind, std::move(message));
  Suspend();
  std::abort();  // never resumed
}

}  // namespace tensorlightning::cuda::emulator
