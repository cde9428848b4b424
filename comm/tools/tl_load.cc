// tl-load: simulated workers against a real aggregator. tl_load_fleet.h says
// what they do.
//
// The table goes to stdout, or with --json=- to stderr, so that stdout is JSON
// alone; what goes on meanwhile, and what went wrong, to stderr.

#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "comm/flags.h"
#include "comm/tools/tl_load_fleet.h"
#include "comm/tools/tl_load_ledger.h"
#include "comm/tools/tl_load_live.h"
#include "comm/tools/tl_load_numbers.h"
#include "comm/tools/tl_load_report.h"
#include "comm/tools/tl_load_settings.h"

namespace tensorlightning {
namespace {

int Complain(const Error& error) {
  std::cerr << "tl-load: " << error.message << "\n";
  return error.code == ErrorCode::kInvalidArgument ? 2 : 1;
}

// SIGINT and SIGTERM, asked for instead of handled. The first one is an order
// to come to an end; the second one is an end.
class Interrupts {
 public:
  // Before any thread is started: they inherit it.
  Interrupts() {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, SIGINT);
    ::sigaddset(&set_, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }

  bool Asked() {
    const timespec at_once{};
    if (::sigtimedwait(&set_, nullptr, &at_once) < 0) return asked_;
    if (asked_) {
      std::cerr << "\ntl-load: stopped at once\n";
      std::_Exit(1);
    }
    std::cerr << "\ntl-load: coming to an end; once more, and it stops at "
                 "once\n";
    asked_ = true;
    return true;
  }
  bool asked() const { return asked_; }

 private:
  sigset_t set_{};
  bool asked_ = false;
};

// A connection for each worker and process of the aggregator.
void RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

void RunAll(const Load& load, LoadFleet& fleet, LiveLine& line,
            const LoadFleet::Tick& tick, LoadReport& report) {
  line.SetPhase("running");
  fleet.Run(tick);
  {
    // What follows is not to be counted as if it had happened in that time.
    Tally run;
    fleet.AddTo(run);
    report.seconds = fleet.run_time().count();
    report.steps_per_s = Ratio(static_cast<double>(run.steps), report.seconds);
    report.exchanges_per_s =
        Ratio(static_cast<double>(run.exchanges), report.seconds);
  }
  line.SetPhase("ending");
  if (load.settings.drain) report.drained = fleet.Drain(tick);
  const bool agree = fleet.Settle(load.settings.check, tick);
  if (load.settings.check && (agree || fleet.disagree())) {
    report.views_agree = agree;
  }
  const Result<std::string> status = fleet.AggregatorStatus(tick);
  if (status.ok()) report.aggregator = *status;
  if (!load.settings.centre_out.empty()) {
    const Status written = fleet.WriteCentre(load.settings.centre_out, tick);
    if (!written.ok()) report.failures.push_back(written.error().message);
  }
  fleet.Leave(tick);
  fleet.AddTo(report.tally);
  report.shards = fleet.shards();
  report.joining_bytes = fleet.joining_bytes();
  report.cuts = fleet.cuts();
  report.crashes = fleet.crashes();
  for (const std::string& failure : fleet.failures()) {
    report.failures.push_back(failure);
  }
}

// Better now than after an hour.
Status CheckWritable(const std::string& path) {
  if (path.empty() || path == "-") return Done{};
  if (std::ofstream(path, std::ios::app).good()) return Done{};
  return Error{ErrorCode::kIo, path + " can't be written"};
}

Status WriteJson(const LoadReport& report, const std::string& path) {
  if (path == "-") {
    std::cout << report.Json() << std::flush;
    return Done{};
  }
  std::ofstream file(path, std::ios::trunc);
  file << report.Json();
  file.close();
  if (file.good()) return Done{};
  return Error{ErrorCode::kIo, "the result can't be written to " + path};
}

int Main(std::span<const char* const> arguments) {
  LoadSettings settings;
  Flags flags = MakeLoadFlags(settings);
  const Result<Flags::Outcome> parsed = flags.Parse(arguments);
  if (!parsed.ok()) return Complain(parsed.error());
  if (*parsed == Flags::Outcome::kHelp) {
    std::cout << flags.Help();
    return 0;
  }
  const Result<Load> load = Load::From(settings);
  if (!load.ok()) return Complain(load.error());
  std::unique_ptr<Ledger> ledger;
  if (!settings.ledger.empty()) {
    Result<std::unique_ptr<Ledger>> opened = Ledger::Open(settings.ledger);
    if (!opened.ok()) return Complain(opened.error());
    ledger = std::move(*opened);
  }
  for (const std::string& path : {settings.json, settings.centre_out}) {
    const Status writable = CheckWritable(path);
    if (!writable.ok()) return Complain(writable.error());
  }
  RaiseFileLimit();
  std::signal(SIGPIPE, SIG_IGN);
  Interrupts interrupts;

  LoadReport report(*load);
  {
    LoadFleet fleet(*load, ledger.get());
    LiveLine line(fleet);
    line.SetPhase("joining");
    const LoadFleet::Tick tick = [&] {
      line.Show();
      return !interrupts.Asked();
    };
    const Status joined = fleet.Join(tick);
    if (!joined.ok()) {
      (void)Complain(joined.error());
      // Others may still be joining, for as long as their patience lasts.
      std::_Exit(1);
    }
    line.Say("tl-load: " + std::to_string(fleet.size()) +
             " workers have joined");
    RunAll(*load, fleet, line, tick, report);
  }
  report.interrupted = interrupts.asked();
  if (ledger != nullptr && !ledger->status().ok()) {
    report.failures.push_back(ledger->status().error().message);
  }
  (settings.json == "-" ? std::cerr : std::cout)
      << report.Table() << std::flush;
  for (const std::string& failure : report.failures) {
    std::cerr << "tl-load: " << failure << "\n";
  }
  if (!settings.json.empty()) {
    const Status written = WriteJson(report, settings.json);
    if (!written.ok()) return Complain(written.error());
  }
  return report.failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace tensorlightning

int main(int argc, char** argv) {
  try {
    return tensorlightning::Main({argv + 1, static_cast<size_t>(argc - 1)});
  } catch (const std::bad_alloc&) {
    std::fputs("tl-load: not enough memory for so many workers of that size\n",
               stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tl-load: %s\n", error.what());
  }
  return 1;
}
