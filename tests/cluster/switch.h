// What the switch does with a frame: learn where it comes from, find out where
// it goes, lose it by chance, and queue it on the way to its host.
//
// The caller polls the ports' files and the time of due().
#ifndef TESTS_CLUSTER_SWITCH_H_
#define TESTS_CLUSTER_SWITCH_H_

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/cluster/egress.h"
#include "tests/cluster/tap.h"

namespace tensorlightning::cluster {

struct Options {
  std::string device = "eth0";
  Egress::Settings egress{.queue = std::chrono::milliseconds(50)};
  double loss = 0;  // Share of the frames.
  uint64_t seed = 0;
  std::vector<std::string> namespaces;
};

struct Port {
  FileDescriptor tap;
  Egress egress;
  // Of its own, so that the frames lost on the way to one host don't depend on
  // what is sent to another meanwhile.
  std::mt19937_64 random;
  bool cut = false;
  uint64_t received = 0;   // Frames from the host.
  uint64_t delivered = 0;  // Frames to the host, and so on:
  uint64_t lost = 0;       // by chance;
  uint64_t dropped = 0;    // no room, no device, or the port is cut.
};

class Switch {
 public:
  explicit Switch(const Options& options) : loss_(options.loss) {
    for (const std::string& name : options.namespaces) {
      FileDescriptor tap = OpenTap(name, options.device);
      // A host that only listens would never be learnt, and all that is sent to
      // it would flood the others.
      ports_by_address_[AddressOf(tap)] = ports_.size();
      ports_.push_back({std::move(tap), Egress(options.egress),
                        std::mt19937_64(options.seed + ports_.size())});
    }
  }

  std::vector<Port>& ports() { return ports_; }

  // Takes frames from a host; false if its device is gone.
  bool Receive(size_t from) {
    for (int i = 0; i < kBurstFrames; ++i) {
      const ssize_t bytes =
          read(ports_[from].tap.get(), buffer_.data(), buffer_.size());
      if (bytes < 0) return errno == EAGAIN || errno == EINTR;
      Forward(from, std::span(buffer_).first(static_cast<size_t>(bytes)));
    }
    return true;
  }

  // When the next frame arrives.
  Clock::time_point due() const {
    auto due = Clock::time_point::max();
    for (const Port& port : ports_) due = std::min(due, port.egress.due());
    return due;
  }

  // Hands the hosts all that has arrived.
  void Deliver() {
    const auto now = Clock::now();
    for (Port& port : ports_) {
      while (port.egress.due() <= now) {
        const std::vector<uint8_t> frame = port.egress.Pop();
        const bool taken =
            !port.cut && write(port.tap.get(), frame.data(), frame.size()) > 0;
        ++(taken ? port.delivered : port.dropped);
      }
    }
  }

 private:
  // Frames to read from one host before it is another's turn.
  static constexpr int kBurstFrames = 32;
  // Hosts have one address each; whoever uses more than this gets floods.
  static constexpr size_t kMaxAddresses = 4096;
  // A frame begins with the address it goes to, the one it comes from, a type.
  static constexpr size_t kHeaderBytes = 14;
  static constexpr size_t kSourceOffset = 6;
  // In the first byte of an address: many are meant.
  static constexpr uint8_t kGroupBit = 1;

  void Forward(size_t from, std::span<const uint8_t> frame) {
    Port& port = ports_[from];
    ++port.received;
    if (port.cut || frame.size() < kHeaderBytes) {
      ++port.dropped;
      return;
    }
    if (ports_by_address_.size() < kMaxAddresses) {
      ports_by_address_[ReadAddress(&frame[kSourceOffset])] = from;
    }
    const auto known = ports_by_address_.find(ReadAddress(frame.data()));
    const bool flood =
        (frame[0] & kGroupBit) != 0 || known == ports_by_address_.end();
    for (size_t to = 0; to < ports_.size(); ++to) {
      if (to != from && (flood || to == known->second)) Send(ports_[to], frame);
    }
  }

  void Send(Port& to, std::span<const uint8_t> frame) const {
    // The distributions of the standard library differ from one to another.
    const double drawn = static_cast<double>(to.random() >> 11) * 0x1p-53;
    if (drawn < loss_) {
      ++to.lost;
    } else if (to.cut || !to.egress.Push(frame, Clock::now())) {
      ++to.dropped;
    }
  }

  double loss_;
  std::vector<Port> ports_;
  std::unordered_map<uint64_t, size_t> ports_by_address_;
  std::array<uint8_t, 65536> buffer_;
};

}  // namespace tensorlightning::cluster

#endif  // TESTS_CLUSTER_SWITCH_H_
