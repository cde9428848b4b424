// What tl-load tells while it runs.
#ifndef TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_LIVE_H_
#define TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_LIVE_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "comm/tools/tl_load_fleet.h"

namespace tensorlightning {

// On stderr: overwritten on a terminal, a line every few seconds elsewhere.
class LiveLine {
 public:
  explicit LiveLine(const LoadFleet& fleet);
  // Ends the line.
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  // "joining", "running"; shown with the next line.
  void SetPhase(const char* phase) { phase_ = phase; }
  // Cheap while the next line is not due.
  void Show();
  // A line of its own.
  void Say(const std::string& text) const;

 private:
  using Clock = std::chrono::steady_clock;

  std::string Text(Clock::time_point now);

  const LoadFleet& fleet_;
  const bool terminal_;
  const Clock::time_point start_;
  Clock::time_point last_;
  const char* phase_ = "";
  bool shown_ = false;
  uint64_t steps_ = 0;
  uint64_t exchanges_ = 0;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_LIVE_H_
