// What tl-load tells: a line while it runs, and at the end a table and JSON.
#ifndef TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_REPORT_H_
#define TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_REPORT_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/tools/tl_load_fleet.h"
#include "comm/tools/tl_load_settings.h"
#include "comm/tools/tl_load_tally.h"

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

struct LoadReport {
  explicit LoadReport(const Load& what) : load(what) {}

  const Load& load;
  Tally tally;
  size_t shards = 0;
  double seconds = 0;  // Of the run.
  uint64_t joining_bytes = 0;
  uint64_t cuts = 0;
  uint64_t crashes = 0;
  bool interrupted = false;
  std::optional<bool> views_agree;  // None: not compared.
  std::optional<bool> drained;      // None: not asked for.
  // The first process's own account, as JSON; none: it did not answer.
  std::optional<std::string> aggregator;
  std::vector<std::string> failures;

  std::string Table() const;
  std::string Json() const;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_REPORT_H_
