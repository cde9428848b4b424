#include "comm/tools/tl_load_live.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <iomanip>
#include <iostream>
#include <sstream>

#include "comm/tools/tl_load_numbers.h"

namespace tensorlightning {
namespace {

constexpr const char* kClearRest = "\x1b[K";

// Of the terminal.
size_t Columns() {
  winsize size{};
  const bool known =
      ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : 80;
}

}  // namespace

LiveLine::LiveLine(const LoadFleet& fleet)
    : fleet_(fleet),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

LiveLine::~LiveLine() {
  if (shown_ && terminal_) std::cerr << "\n";
}

void LiveLine::Say(const std::string& text) const {
  std::cerr << (terminal_ ? "\r" : "") << text << (terminal_ ? kClearRest : "")
            << "\n";
}

std::string LiveLine::Text(Clock::time_point now) {
  Tally tally;
  fleet_.AddTo(tally);
  const double seconds = std::chrono::duration<double>(now - last_).count();
  const auto rate = [&](uint64_t total, uint64_t& before) {
    const uint64_t more = total - before;
    before = total;
    return Short(static_cast<double>(more) / seconds);
  };
  std::ostringstream out;
  out << std::fixed << std::setprecision(1)
      << std::chrono::duration<double>(now - start_).count() << " s " << phase_
      << "  " << fleet_.joined() << "/" << fleet_.size() << " joined, "
      << fleet_.live() << " live  " << rate(tally.steps, steps_) << " steps/s  "
      << rate(tally.exchanges, exchanges_) << " exchanges/s  "
      << Megabytes(tally.bytes_sent) << " MB out "
      << Megabytes(tally.bytes_received) << " in  p99 "
      << Milliseconds(tally.latency.Quantile(0.99)) << " ms  "
      << tally.reconnects << " reconnects";
  return out.str();
}

void LiveLine::Show() {
  const Clock::time_point now = Clock::now();
  const std::chrono::milliseconds gap(terminal_ ? 500 : 5'000);
  if (now - last_ < gap) return;
  const std::string text = Text(now);
  if (terminal_) {
    // One that is broken in two could not be overwritten.
    std::cerr << "\r" << text.substr(0, Columns() - 1) << kClearRest
              << std::flush;
  } else {
    std::cerr << text << "\n";
  }
  last_ = now;
  shown_ = true;
}

}  // namespace tensorlightning
