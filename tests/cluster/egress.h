// One direction of a link: from the switch to a host. A frame waits for those
// before it, takes the time that the rate gives it, and then travels:
//
//   Push --> [ waits: at most `queue` ] --> [ size / rate ] --> [ delay ] -->
//   Pop
//
// There are no tokens and no timers: when a frame arrives, the time at which it
// will have passed is already known.
#ifndef TESTS_CLUSTER_EGRESS_H_
#define TESTS_CLUSTER_EGRESS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace tensorlightning::cluster {

using Clock = std::chrono::steady_clock;

class Egress {
 public:
  struct Settings {
    Clock::duration delay{};
    Clock::duration
        queue{};  // Longest wait; a frame that would wait longer is dropped.
    double bits_per_s = 0;  // 0: without limit.
  };

  explicit Egress(const Settings& settings) : settings_(settings) {}

  // For frames yet to come; those that are on their way arrive as they would.
  void set_bits_per_s(double rate) { settings_.bits_per_s = rate; }

  // False if there is no room for the frame.
  bool Push(std::span<const uint8_t> frame, Clock::time_point now) {
    const auto start = std::max(now, free_at_);
    const size_t cost = frame.size() + kFrameOverheadBytes;
    if (start - now > settings_.queue || held_bytes_ + cost > kMaxHeldBytes) {
      return false;
    }
    free_at_ = start + TimeOnWire(frame.size());
    held_bytes_ += cost;
    frames_.push_back(
        {free_at_ + settings_.delay, {frame.begin(), frame.end()}});
    return true;
  }

  // When the next frame arrives.
  Clock::time_point due() const {
    return frames_.empty() ? Clock::time_point::max() : frames_.front().due;
  }

  // The next frame; there must be one.
  std::vector<uint8_t> Pop() {
    std::vector<uint8_t> bytes = std::move(frames_.front().bytes);
    frames_.pop_front();
    held_bytes_ -= bytes.size() + kFrameOverheadBytes;
    return bytes;
  }

 private:
  struct Frame {
    Clock::time_point due;
    std::vector<uint8_t> bytes;
  };

  // Bounds the memory where neither a rate nor a short delay does; enough for
  // 1 Gbit/s and half a second.
  static constexpr size_t kMaxHeldBytes = size_t{64} << 20;
  static constexpr size_t kFrameOverheadBytes = sizeof(Frame) + 16;

  Clock::duration TimeOnWire(size_t bytes) const {
    if (settings_.bits_per_s == 0) return {};
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(8 * static_cast<double>(bytes) /
                                      settings_.bits_per_s));
  }

  Settings settings_;
  Clock::time_point free_at_;  // When the last frame has left the queue.
  std::deque<Frame> frames_;
  size_t held_bytes_ = 0;
};

}  // namespace tensorlightning::cluster

#endif  // TESTS_CLUSTER_EGRESS_H_
