#include "comm/tools/tl_load_settings.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "comm/tools/tl_load_layout.h"

namespace tensorlightning {
namespace {

constexpr std::chrono::milliseconds kDefaultDuration{10'000};
constexpr uint64_t kLongestGap = 16;  // Times the shortest, if adaptive.

void ReadVariable(const char* name, std::string& target) {
  const char* const value = std::getenv(name);
  if (value != nullptr && *value != '\0') target = value;
}

Error Bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

Status InRange(const char* flag, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return Done{};
  return Bad("--" + std::string(flag) + "=" + std::to_string(value) +
             " is not from " + std::to_string(least) + " to " +
             std::to_string(most));
}

Status IsShare(const char* flag, double value) {
  if (value >= 0 && value <= 1) return Done{};
  return Bad("--" + std::string(flag) + "=" + std::to_string(value) +
             " is not from 0 to 1");
}

Status Positive(const char* flag, std::chrono::milliseconds value) {
  if (value.count() >= 1 && value <= std::chrono::hours(24)) return Done{};
  return Bad("--" + std::string(flag) + " must be from 1 ms to a day");
}

Status CheckNumbers(const LoadSettings& settings) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  Status status = InRange("workers", settings.workers, 1, 65'536);
  if (status.ok()) {
    status = InRange("rank-base", settings.rank_base, kAnyRank, 1 << 30);
  }
  if (status.ok()) status = InRange("attempt", settings.attempt, 0, kMost);
  if (status.ok()) status = IsShare("density", settings.density);
  if (status.ok()) status = IsShare("reply-density", settings.reply_density);
  if (status.ok()) status = IsShare("moves", settings.moves);
  if (status.ok()) status = IsShare("fault-rate", settings.fault_rate);
  if (status.ok()) status = InRange("period", settings.period, 1, 1 << 30);
  if (status.ok()) status = InRange("steps", settings.steps, 0, kMost);
  if (status.ok()) status = InRange("threads", settings.threads, 1, 256);
  if (status.ok()) status = Positive("patience", settings.patience);
  if (status.ok()) status = Positive("give-up", settings.give_up);
  if (status.ok() && !(settings.adaptive >= 0)) {
    status = Bad("--adaptive: a share of the model's norm, from 0 on");
  }
  return status;
}

LogLevel LevelOf(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kNone;
}

Result<ValueCode> CodeOfBits(int64_t bits) {
  for (int i = 0; i < kValueCodes; ++i) {
    const auto code = static_cast<ValueCode>(i);
    if (ValueBits(code) == bits) return code;
  }
  return Bad("--bits=" + std::to_string(bits) + " is none of 32, 16, 8, 4, 2");
}

Result<Policy> PolicyOf(const LoadSettings& settings) {
  Result<Policy> policy = Policy::FromName(settings.policy);
  if (!policy.ok()) return policy;
  const bool given = settings.density != 0 || settings.reply_density != 0 ||
                     settings.bits != 0;
  if (settings.policy == "dense" && given) {
    return Bad(
        "--policy=dense sends every entry as it is: without --density, "
        "--reply-density and --bits");
  }
  if (settings.density != 0) {
    policy->up.rule = SelectionRule::ChunkTopK(settings.density);
  }
  if (settings.reply_density != 0) {
    policy->down.rule = SelectionRule::ChunkTopK(settings.reply_density);
  }
  if (settings.bits != 0) {
    const Result<ValueCode> code = CodeOfBits(settings.bits);
    if (!code.ok()) return code.error();
    policy->up.values = policy->down.values = *code;
  }
  return policy;
}

Result<ClientOptions> ClientOf(const LoadSettings& settings) {
  ClientOptions client;
  if (settings.aggregator.empty()) {
    return Bad(
        "no aggregator is given: --aggregator=HOST:PORT, or set "
        "TL_AGGREGATOR");
  }
  Result<std::vector<Endpoint>> where =
      Endpoint::ParseList(settings.aggregator);
  if (!where.ok()) return Bad("--aggregator: " + where.error().message);
  client.aggregators = std::move(*where);
  Result<Policy> policy = PolicyOf(settings);
  if (!policy.ok()) return policy.error();
  client.policy = *policy;
  Result<Secret> secret = settings.secret_file.empty()
                              ? Secret::FromEnvironment()
                              : Secret::FromFile(settings.secret_file);
  if (!secret.ok()) return secret.error();
  client.secret = std::move(*secret);
  if (!settings.tls_ca.empty()) {
    Result<TlsContext> tls = MakeClientTls(settings.tls_ca);
    if (!tls.ok()) return tls.error();
    client.tls = std::move(*tls);
  }
  client.job = settings.job;
  client.congestion = settings.congestion;
  client.patience = settings.patience;
  client.give_up = settings.give_up;
  client.log = Log(2, LevelOf(settings.log_level));
  return client;
}

}  // namespace

LoadSettings::LoadSettings() {
  ReadVariable("TL_AGGREGATOR", aggregator);
  ReadVariable("TL_JOB", job);
  ReadVariable("TL_TLS_CA", tls_ca);
}

std::shared_ptr<Schedule> Load::MakeSchedule() const {
  const auto period = static_cast<uint64_t>(settings.period);
  if (settings.adaptive == 0) return std::make_shared<Every>(period);
  Result<std::unique_ptr<OnChange>> made =
      OnChange::Make({.share = settings.adaptive,
                      .shortest = period,
                      .longest = kLongestGap * period});
  // Cannot fail: the numbers are checked. If it did, Start() would take its
  // own default.
  return made.ok() ? std::shared_ptr<Schedule>(std::move(*made)) : nullptr;
}

Result<Load> Load::From(LoadSettings settings) {
  if (settings.steps == 0 && settings.duration.count() == 0) {
    settings.duration = kDefaultDuration;
  }
  const Status status = CheckNumbers(settings);
  if (!status.ok()) return status.error();
  Result<ClientOptions> client = ClientOf(settings);
  if (!client.ok()) return client.error();
  Result<Layout> layout = ParseLoadLayout(settings.layout);
  if (!layout.ok()) return Bad("--layout: " + layout.error().message);
  Load load{std::move(settings), std::move(*layout), std::move(*client)};
  if (load.settings.drain && load.averages()) {
    return Bad(
        "--drain goes with the gradient policies: models that differ always "
        "owe each other something");
  }
  return load;
}

Flags MakeLoadFlags(LoadSettings& s) {
  Flags flags("tl-load",
              "Simulated workers against a real aggregator: how much it "
              "takes, and whether it stays right.");
  flags.Add("aggregator", &s.aggregator, "HOST:PORT|unix:PATH",
            "where it listens; its processes separated by commas; without it "
            "TL_AGGREGATOR");
  flags.Add("job", &s.job, "NAME", "the job to join; without it TL_JOB");
  flags.Add("secret-file", &s.secret_file, "FILE",
            "the job's secret; without it TL_SECRET_FILE or TL_SECRET");
  flags.Add("tls-ca", &s.tls_ca, "FILE",
            "PEM; connect over TLS, to who has a certificate of this "
            "authority; without it TL_TLS_CA");
  flags.Add("workers", &s.workers, "N", "workers to simulate");
  flags.Add("rank-base", &s.rank_base, "R",
            "the first worker's rank; -1: the aggregator gives them");
  flags.Add("attempt", &s.attempt, "N",
            "fences off earlier ones of the same rank; 0: the time");
  flags.Add("layout", &s.layout, "ENTRIES|NAME:AxB,...",
            "the model: a number of entries, as 25M or 100k, for a plausible "
            "one of that size, or its tensors");
  flags.AddChoice("policy", &s.policy,
                  {"elastic", "local", "dense", "gradient", "gradient-async"},
                  "what is exchanged");
  flags.Add("density", &s.density, "SHARE",
            "of entries in a push; 0: the policy's own");
  flags.Add("reply-density", &s.reply_density, "SHARE",
            "of entries in a reply; 0: the policy's own");
  flags.Add("bits", &s.bits, "32|16|8|4|2",
            "for a value, both ways; 0: the policy's own");
  flags.Add("period", &s.period, "STEPS", "from one exchange to the next");
  flags.Add("adaptive", &s.adaptive, "SHARE",
            "exchange when the model has moved by this share of its norm, "
            "after --period to 16 times --period steps; 0: off");
  flags.Add("step", &s.step, "TIME",
            "that a step of training takes; 0: none, but no step is taken "
            "while an exchange is under way");
  flags.Add("steps", &s.steps, "N", "steps of each worker; 0: no limit");
  flags.Add("duration", &s.duration, "TIME",
            "of the run; 0: until --steps are done, or 10s");
  flags.Add("moves", &s.moves, "SHARE",
            "of entries that a step moves: under a gradient policy, those that "
            "are not 0");
  flags.Add("fault-rate", &s.fault_rate, "SHARE",
            "of steps after which the worker loses its connections, or "
            "(every other time) crashes and starts anew");
  flags.Add("seed", &s.seed, "N", "of everything that is random");
  flags.Add("exact", &s.exact,
            "only values whose sums are exact in any order: multiples of "
            "1/256");
  flags.Add("threads", &s.threads, "N", "of the pool that all workers share");
  flags.Add("congestion", &s.congestion, "NAME",
            "TCP's congestion control: cubic, bbr, ...");
  flags.Add("patience", &s.patience, "TIME",
            "for joining, and for each of the things that are done at the "
            "end");
  flags.Add("give-up", &s.give_up, "TIME",
            "without an aggregator until a worker fails for good");
  // A thousand workers that lose one aggregator say so a thousand times.
  flags.AddChoice("log-level", &s.log_level,
                  {"debug", "info", "warning", "error", "none"},
                  "the least of what workers have to say that is logged");
  flags.Add("drain", &s.drain,
            "gradient policies: at the end, exchange zeros until nothing is "
            "owed any more");
  flags.Add("check", &s.check,
            "at the end, compare every worker's view with the aggregator's; "
            "exit with 1 if one differs");
  flags.Add("ledger", &s.ledger, "FILE",
            "append every push before it is sent: u32 rank, u32 shard, u64 "
            "sequence, u32 bytes (little-endian), code");
  flags.Add("centre-out", &s.centre_out, "FILE",
            "at the end, write the centre as raw float32, tensor after "
            "tensor");
  flags.Add("json", &s.json, "FILE|-", "write the result as JSON, too");
  flags.Epilogue(
      "Exit status: 0, everything went well; 1, something failed; 2, the "
      "command line is wrong. SIGINT and SIGTERM end the run early; what is to "
      "be done at the end is still done.");
  return flags;
}

}  // namespace tensorlightning
