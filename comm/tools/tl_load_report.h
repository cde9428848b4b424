// What tl-load has found out: a table for people, JSON for programs.
#ifndef TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_REPORT_H_
#define TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/tools/tl_load_settings.h"
#include "comm/tools/tl_load_tally.h"

namespace tensorlightning {

struct LoadReport {
  explicit LoadReport(const Load& what) : load(what) {}

  const Load& load;
  Tally tally;
  size_t shards = 0;
  double seconds = 0;  // Of the run, and what was done in it.
  double steps_per_s = 0;
  double exchanges_per_s = 0;
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
