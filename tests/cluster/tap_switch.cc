// A learning Ethernet switch in user space, for kernels without netem: it joins
// the TAP devices of several network namespaces, and delays, loses and limits
// the frames between them.
//
//   host 0: eth0 --read--+                      +--Egress 0--write--> eth0
//   host 1: eth0 --read--+--> Switch: whereto? -+--Egress 1--write--> eth0
//   host 2: eth0 --read--+                      +--Egress 2--write--> eth0
//
// tap_switch.py starts it and talks to it; kUsage says how. One thread does it
// all: a frame costs little more than its two system calls.
#include <getopt.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cluster/switch.h"

namespace tensorlightning::cluster {
namespace {

constexpr char kUsage[] =
    R"(usage: tap_switch [OPTION]... NAMESPACE...
Switches Ethernet frames between the TAP devices of network namespaces.

  --device=NAME    the TAP's name in each namespace (eth0)
  --delay_ms=MS    what every frame takes (0)
  --loss=SHARE     share of the frames that are lost, 0 to 1 (0)
  --seed=N         which ones are lost (0)
  --rate_bps=BITS  bits per second to each host (0: no limit)
  --queue_ms=MS    longest wait for the rate; frames beyond it are dropped (50)

Commands on the standard input, one to a line:
  rate PORT BITS   change the rate to the host on a port (0, 1, ...)
  cut PORT         drop every frame from and to it
  mend PORT        no longer do so
  counters         nothing else
Each is answered, once it holds, with the frame counters of all ports in JSON;
so is the start, and the end, which comes with the end of the input or SIGTERM.
)";

constexpr double kMaxMs = 60'000;
constexpr double kMaxBitsPerS = 1e12;

template <typename Number>
Number Parse(std::string_view text, Number max) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  // Not "number < 0 || number > max": NaN must not pass.
  const bool fits = number >= 0 && number <= max;
  if (error != std::errc() || rest != end || !fits) {
    throw std::invalid_argument("'" + std::string(text) +
                                "' is not a number from 0 to " +
                                std::to_string(max));
  }
  return number;
}

Clock::duration ParseMs(std::string_view text) {
  const std::chrono::duration<double, std::milli> ms(Parse(text, kMaxMs));
  return std::chrono::duration_cast<Clock::duration>(ms);
}

Options ParseOptions(int argc, char** argv) {
  static const option kOptions[] = {
      {"device", required_argument, nullptr, 'd'},
      {"delay_ms", required_argument, nullptr, 'm'},
      {"loss", required_argument, nullptr, 'l'},
      {"seed", required_argument, nullptr, 's'},
      {"rate_bps", required_argument, nullptr, 'r'},
      {"queue_ms", required_argument, nullptr, 'q'},
      {"help", no_argument, nullptr, 'h'},
      {}};
  Options options;
  int letter = 0;
  while ((letter = getopt_long(argc, argv, "", kOptions, nullptr)) != -1) {
    if (letter == 'd') {
      options.device = optarg;
    } else if (letter == 'm') {
      options.egress.delay = ParseMs(optarg);
    } else if (letter == 'l') {
      options.loss = Parse(optarg, 1.0);
    } else if (letter == 's') {
      options.seed = Parse<uint64_t>(optarg, UINT64_MAX);
    } else if (letter == 'r') {
      options.egress.bits_per_s = Parse(optarg, kMaxBitsPerS);
    } else if (letter == 'q') {
      options.egress.queue = ParseMs(optarg);
    } else if (letter == 'h') {
      std::fputs(kUsage, stdout);
      std::exit(0);
    } else {
      throw std::invalid_argument("see --help");
    }
  }
  options.namespaces.assign(argv + optind, argv + argc);
  if (options.namespaces.empty()) {
    throw std::invalid_argument("no namespaces were given; see --help");
  }
  return options;
}

void PrintCounters(Switch& frames) {
  const char* separator = "[";
  for (const Port& port : frames.ports()) {
    std::printf(
        R"(%s{"received": %lu, "delivered": %lu, "lost": %lu, "dropped": %lu})",
        separator, port.received, port.delivered, port.lost, port.dropped);
    separator = ", ";
  }
  std::puts("]");
  std::fflush(stdout);
}

void Obey(const std::string& line, Switch& frames) {
  std::istringstream words(line);
  std::string verb, port, bits;
  words >> verb >> port >> bits;
  const auto chosen = [&]() -> Port& {
    return frames.ports()[Parse(port, frames.ports().size() - 1)];
  };
  if (verb == "rate") {
    chosen().egress.set_bits_per_s(Parse(bits, kMaxBitsPerS));
  } else if (verb == "cut" || verb == "mend") {
    chosen().cut = verb == "cut";
  } else if (verb != "counters") {
    throw std::invalid_argument("there is no command '" + verb + "'");
  }
  PrintCounters(frames);
}

// False at the end of the input. A line may come in pieces.
bool ObeyInput(std::string& pending, Switch& frames) {
  constexpr size_t kMaxLineBytes = 256;
  char buffer[kMaxLineBytes];
  const ssize_t bytes = read(STDIN_FILENO, buffer, sizeof(buffer));
  if (bytes <= 0 || pending.size() > kMaxLineBytes) return false;
  pending.append(buffer, static_cast<size_t>(bytes));
  for (auto end = pending.find('\n'); end != std::string::npos;
       end = pending.find('\n')) {
    Obey(pending.substr(0, end), frames);
    pending.erase(0, end + 1);
  }
  return true;
}

// Signals that end the switch, as a file that poll() can watch.
FileDescriptor WatchSignals() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  // The parent may be gone when the last counters are written.
  std::signal(SIGPIPE, SIG_IGN);
  return {signalfd(-1, &ends, SFD_CLOEXEC), "signalfd"};
}

void Run(Switch& frames, const FileDescriptor& signals) {
  std::vector<pollfd> files = {{STDIN_FILENO, POLLIN, 0},
                               {signals.get(), POLLIN, 0}};
  const size_t first_port = files.size();
  for (const Port& port : frames.ports()) {
    files.push_back({port.tap.get(), POLLIN, 0});
  }
  std::string pending;
  while (true) {
    const auto due = frames.due();
    const bool idle = due == Clock::time_point::max();
    const auto wait = std::max(Clock::duration(0), due - Clock::now());
    const timespec timeout{.tv_sec = wait / std::chrono::seconds(1),
                           .tv_nsec = (wait % std::chrono::seconds(1)).count()};
    const int ready =
        ppoll(files.data(), files.size(), idle ? nullptr : &timeout, nullptr);
    if (ready < 0 && errno != EINTR) ThrowErrno("ppoll");
    if (files[1].revents != 0) return;
    if (files[0].revents != 0 && !ObeyInput(pending, frames)) return;
    for (size_t i = first_port; i < files.size(); ++i) {
      const bool gone =
          files[i].revents != 0 && !frames.Receive(i - first_port);
      // poll() would report a lost device for ever; -1 it passes over.
      if (gone) files[i].fd = -1;
    }
    frames.Deliver();
  }
}

}  // namespace
}  // namespace tensorlightning::cluster

int main(int argc, char** argv) {
  namespace cluster = tensorlightning::cluster;
  try {
    const cluster::Options options = cluster::ParseOptions(argc, argv);
    const cluster::FileDescriptor signals = cluster::WatchSignals();
    // Otherwise the kernel may end a wait 50 microseconds late.
    prctl(PR_SET_TIMERSLACK, 1UL);
    cluster::Switch frames(options);
    cluster::PrintCounters(frames);
    cluster::Run(frames, signals);
    cluster::PrintCounters(frames);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tap_switch: %s\n", error.what());
    return 1;
  }
}
