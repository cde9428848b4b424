// tl-load's command line, and what it comes to.
#ifndef TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_SETTINGS_H_
#define TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_SETTINGS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/client/elastic_client.h"
#include "comm/flags.h"
#include "comm/layout.h"
#include "kernels/result.h"

namespace tensorlightning {

// As given. Where a number is 0 and 0 makes no sense, it was not given.
struct LoadSettings {
  // With what the TL_* variables say as defaults.
  LoadSettings();

  std::string aggregator;
  std::string job = "default";
  std::string secret_file;
  std::string tls_ca;
  int64_t workers = 4;
  int64_t rank_base = kAnyRank;
  int64_t attempt = 0;

  std::string layout = "1M";
  std::string policy = "elastic";
  double density = 0;
  double reply_density = 0;
  int64_t bits = 0;
  int64_t period = 10;
  double adaptive = 0;

  std::chrono::milliseconds step{10};
  int64_t steps = 0;
  std::chrono::milliseconds duration{0};
  double moves = 1.0 / 64;
  double fault_rate = 0;
  int64_t seed = 1;
  bool exact = false;

  int64_t threads = 2;
  std::string congestion;
  std::chrono::milliseconds patience{60'000};
  std::chrono::milliseconds give_up{600'000};
  std::string log_level = "none";

  bool drain = false;
  bool check = false;
  std::string ledger;
  std::string centre_out;
  std::string json;
};

Flags MakeLoadFlags(LoadSettings& settings);

// What the settings come to, checked.
struct Load {
  LoadSettings settings;
  Layout layout;
  // Of every worker, but for rank, attempt, schedule, pool and on_push.
  ClientOptions client;

  bool averages() const { return client.policy.rule == Rule::kAverage; }
  bool has_barrier() const { return client.policy.rule == Rule::kGradientSync; }
  // Each worker's own.
  std::shared_ptr<Schedule> MakeSchedule() const;

  // kInvalidArgument: the command line is at fault.
  static Result<Load> From(LoadSettings settings);
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_SETTINGS_H_
