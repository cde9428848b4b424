// Lines of JSON for the launcher, through the pipe that TL_REPORT_FD names: at
// most two a second, and none that would have to wait. docs/tlrun.md has their
// fields.
//
//   ProgressReport report = ProgressReport::FromEnvironment();
//   if (report.IsDue()) report.Send({.steps = 120, .loss = 0.43});
//   ...
//   report.Send({.steps = 4800, .done = true});
#ifndef TENSORLIGHTNING_COMM_WORKER_PROGRESS_REPORT_H_
#define TENSORLIGHTNING_COMM_WORKER_PROGRESS_REPORT_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace tensorlightning {

struct Progress {
  uint64_t steps = 0;
  std::optional<double> loss = std::nullopt;
  uint64_t sent = 0;  // Bytes.
  uint64_t received = 0;
  uint64_t dense = 0;  // What unpruned exchanges would have moved.
  uint64_t exchanges = 0;
  double density = 0.0;
  double staleness = 0.0;
  uint32_t live = 1;
  std::string policy = {};
  bool done = false;
};

class ProgressReport {
 public:
  // Without a pipe it reports to nobody.
  explicit ProgressReport(int descriptor = -1);
  static ProgressReport FromEnvironment();

  bool IsDue() const;
  // What the pipe does not take at once is dropped.
  void Send(const Progress& progress);

 private:
  using Clock = std::chrono::steady_clock;

  int descriptor_;
  Clock::time_point next_;
  // Of the last line, for the rate.
  Clock::time_point last_;
  uint64_t last_steps_ = 0;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_WORKER_PROGRESS_REPORT_H_
