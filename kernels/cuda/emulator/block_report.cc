// What a block says when it cannot go on: BlockRunner's reports.
#include <cstdio>
#include <map>
#include <sstream>

#include "kernels/cuda/emulator/block.h"
#include "kernels/cuda/emulator/sanitizers.h"

namespace tensorlightning::cuda::emulator {
namespace {

std::string Line(const Source& source) {
  if (source.line == 0) return "the kernel's beginning";
  return std::string(source.file) + ":" + std::to_string(source.line);
}

std::string Hex(unsigned mask) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08x", mask);
  return text;
}

std::string Triple(const uint3& v) {
  return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," +
         std::to_string(v.z) + ")";
}

}  // namespace

std::string Error::ToString() const {
  return "CUDA emulator: " + kernel + ", block " + Triple(block) + ", thread " +
         Triple(thread) + ", at " + source + ": " + message;
}

uint3 BlockRunner::ThreadIndex(uint32_t thread) const {
  const dim3& b = grid_.block;
  return {thread % b.x, thread / b.x % b.y, thread / b.x / b.y};
}

void BlockRunner::Report(uint32_t thread, ErrorKind kind, std::string message) {
  grid_.Fail({kind, grid_.kernel, blockIdx, ThreadIndex(thread),
              Line(threads_[thread].source), std::move(message)});
  // The launching thread will read it.
  Release(&grid_.end_cell);
}

// "has ended", "waits at __syncthreads (file:line)", ...
std::string BlockRunner::Describe(uint32_t t) const {
  const Thread& thread = threads_[t];
  std::string who = "thread " + Triple(ThreadIndex(t));
  switch (thread.state) {
    case State::kReady:
      return who + ", which runs after " + Line(thread.source);
    case State::kBarrier:
      return who + ", which waits at the __syncthreads of " +
             Line(thread.source);
    case State::kMeeting: {
      const Warp& warp = warps_[t / kLanes];
      return who + ", which waits at the " + Name(warp.Kind(thread.meeting)) +
             " of " + Line(thread.source) + " with mask " +
             Hex(warp.Mask(thread.meeting));
    }
    case State::kEnded:
      return who + ", which has ended after " + Line(thread.source);
  }
  return who;
}

// One line for each place where threads wait, with how many do.
std::string BlockRunner::DescribeWaiting() const {
  std::map<std::string, int> places;
  for (uint32_t t = 0; t < count_; ++t) {
    const std::string text = Describe(t);
    ++places[text.substr(text.find("which ") + 6)];
  }
  std::ostringstream out;
  for (const auto& [place, threads] : places) {
    out << "\n  " << threads << " of " << count_ << ": " << place;
  }
  return out.str();
}

// No thread can run. A collective that misses a lane is the cause rather than
// the barrier that its other lanes therefore never reach, unless the missing
// lane waits at that barrier: then both are one divergence.
void BlockRunner::ReportStuck() {
  for (uint32_t t = 0; t < count_; ++t) {
    if (threads_[t].state != State::kMeeting) continue;
    const Warp& warp = warps_[t / kLanes];
    const int meeting = threads_[t].meeting;
    const unsigned missing = warp.Mask(meeting) & ~warp.Arrived(meeting);
    const auto lane = static_cast<uint32_t>(__builtin_ctz(missing));
    const uint32_t absent = t / kLanes * kLanes + lane;
    const std::string who = absent < count_
                                ? Describe(absent)
                                : "lane " + std::to_string(lane) +
                                      ", which the block does not have";
    const bool divergent =
        absent < count_ && threads_[absent].state == State::kBarrier;
    const std::string text = std::string(Name(warp.Kind(meeting))) +
                             " with mask " + Hex(warp.Mask(meeting)) +
                             " waits for " + who + DescribeWaiting();
    if (divergent) {
      return Report(absent, ErrorKind::kDivergentBarrier,
                    "__syncthreads that not all threads reach: " + text);
    }
    return Report(t, ErrorKind::kAbsentLane, text);
  }
  for (uint32_t t = 0; t < count_; ++t) {
    if (threads_[t].state != State::kBarrier) continue;
    return Report(
        t, ErrorKind::kDivergentBarrier,
        "__syncthreads that not all threads reach:" + DescribeWaiting());
  }
}

void BlockRunner::ReportStalled() {
  uint32_t spinning = 0;
  while (threads_[spinning].state != State::kReady) ++spinning;
  Report(spinning, ErrorKind::kStalled,
         "spins on what no resident block will do (" +
             std::to_string(grid_.options.workers) +
             " resident):" + DescribeWaiting());
}

}  // namespace tensorlightning::cuda::emulator
