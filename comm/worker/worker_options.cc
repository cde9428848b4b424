#include "comm/worker/worker_options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>
#include <variant>
#include <vector>

namespace tensorlightning {
namespace {

using Field = std::variant<std::string WorkerOptions::*,
                           uint64_t WorkerOptions::*, uint32_t WorkerOptions::*,
                           int32_t WorkerOptions::*, double WorkerOptions::*>;

const std::map<std::string, Field, std::less<>>& Fields() {
  static const std::map<std::string, Field, std::less<>> fields = {
      {"policy", &WorkerOptions::policy},
      {"period", &WorkerOptions::period},
      {"beta", &WorkerOptions::beta},
      {"density", &WorkerOptions::density},
      {"reply_density", &WorkerOptions::reply_density},
      {"bits", &WorkerOptions::bits},
      {"when", &WorkerOptions::when},
      {"change", &WorkerOptions::change},
      {"momentum", &WorkerOptions::momentum},
      {"aggregator", &WorkerOptions::aggregator},
      {"embed", &WorkerOptions::embed},
      {"job", &WorkerOptions::job},
      {"rank", &WorkerOptions::rank},
      {"size", &WorkerOptions::size},
      {"attempt", &WorkerOptions::attempt},
      {"secret_file", &WorkerOptions::secret_file},
      {"tls_ca", &WorkerOptions::tls_ca},
      {"patience", &WorkerOptions::patience_s},
      {"ending", &WorkerOptions::ending},
      {"report", &WorkerOptions::report}};
  return fields;
}

// Of a worker's place in its job: launchers set these, people don't.
bool IsForLaunchers(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "attempt", "embed", "ending", "momentum", "rank", "report", "size"};
  return std::find(std::begin(kNames), std::end(kNames), name) !=
         std::end(kNames);
}

Error Bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

Error BadValue(std::string_view name, std::string_view value,
               const std::string& allowed) {
  return Bad(std::string(name) + "=" + std::string(value) + ": " + allowed);
}

Error BadValue(std::string_view name, double value,
               const std::string& allowed) {
  std::ostringstream text;
  text << value;
  return BadValue(name, text.str(), allowed);
}

template <typename Number>
bool ReadNumber(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && read == end;
}

Status Set(WorkerOptions& options, std::string_view name,
           std::string_view value) {
  const auto found = Fields().find(name);
  if (found == Fields().end()) return WorkerOptions::NoSetting(name, "");
  return std::visit(
      [&](auto field) -> Status {
        auto& target = options.*field;
        if constexpr (std::is_same_v<decltype(target), std::string&>) {
          target = value;
          return Done{};
        } else {
          if (ReadNumber(value, target)) return Done{};
          using Number = std::remove_reference_t<decltype(target)>;
          return BadValue(name, value,
                          !std::is_integral_v<Number> ? "this is no number"
                          : std::is_unsigned_v<Number>
                              ? "it is a whole number, and not negative"
                              : "it is a whole number");
        }
      },
      found->second);
}

Status SetFromEnvironment(WorkerOptions& options) {
  for (const auto& [name, field] : Fields()) {
    std::string variable = "TL_";
    for (const char c : name) {
      variable +=
          static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    const char* const value = std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0') continue;
    Status status = Set(options, name, value);
    if (!status.ok()) return Bad(variable + ": " + status.error().message);
  }
  return Done{};
}

Result<ValueCode> CodeOf(int bits) {
  switch (bits) {
    case 32:
      return ValueCode::kFloat32;
    case 16:
      return ValueCode::kBfloat16;
    case 8:
      return ValueCode::kBits8;
    case 4:
      return ValueCode::kBits4;
    case 2:
      return ValueCode::kBits2;
    default:
      return Bad("bits=" + std::to_string(bits) +
                 ": a value has 32, 16, 8, 4 or 2 bits");
  }
}

// Written so that NaN is none.
bool IsShare(double value) { return value > 0.0 && value <= 1.0; }

}  // namespace

Result<WorkerOptions> WorkerOptions::Parse(std::string_view text) {
  WorkerOptions options;
  Status status = SetFromEnvironment(options);
  if (!status.ok()) return status.error();
  const char* const separators =
      text.find('\n') == std::string_view::npos ? " \t" : "\n";
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(separators), text.size());
    const std::string_view setting = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (setting.empty()) continue;
    const size_t equals = setting.find('=');
    if (equals == std::string_view::npos) {
      return Bad("'" + std::string(setting) +
                 "' is no setting: they are written name=value");
    }
    status =
        Set(options, setting.substr(0, equals), setting.substr(equals + 1));
    if (!status.ok()) return status.error();
  }
  status = options.Check();
  if (!status.ok()) return status.error();
  return options;
}

Error WorkerOptions::NoSetting(std::string_view name, std::string_view more) {
  std::string known;
  for (const auto& [key, field] : Fields()) {
    if (!IsForLaunchers(key)) known += " " + key;
  }
  return Bad("there is no setting '" + std::string(name) + "'; there are" +
             known + std::string(more));
}

bool WorkerOptions::Has(std::string_view name) {
  return Fields().find(name) != Fields().end();
}

Status WorkerOptions::Check() const {
  if (policy == "gossip") {
    return Bad(
        "policy=gossip does not exist yet; there are elastic, local, "
        "dense, gradient and gradient-async");
  }
  if (period < 1) return Bad("period=0: it is counted in steps, from 1 on");
  if (!IsShare(beta)) {
    return BadValue("beta", beta, "above 0, at most 1");
  }
  if (!IsShare(density)) {
    return BadValue("density", density, "above 0, at most 1");
  }
  if (!IsShare(reply_density)) {
    return BadValue("reply_density", reply_density, "above 0, at most 1");
  }
  if (when != "period" && when != "adaptive") {
    return BadValue("when", when, "it is period or adaptive");
  }
  if (!(change > 0.0)) {
    return BadValue("change", change, "it is above 0");
  }
  const bool is_patience = patience_s > 0.0 && patience_s <= 1e6;
  if (!is_patience) {
    return BadValue("patience", patience_s, "seconds, above 0");
  }
  if (ending != "together" && ending != "apart") {
    return BadValue("ending", ending, "it is together or apart");
  }
  if (ends_apart() && is_gradient()) {
    return Bad("ending=apart is for policies that average weights, not for " +
               policy);
  }
  if (report > 1) return Bad("report=" + std::to_string(report) + ": 0 or 1");
  if (size < 1) return Bad("size=0: a job has at least one worker");
  if (rank < kAnyRank) {
    return BadValue("rank", std::to_string(rank), "ranks count from 0");
  }
  const Result<Policy> made = MakePolicy();
  return made.ok() ? made->Check() : Status(made.error());
}

std::chrono::milliseconds WorkerOptions::patience() const {
  return std::chrono::milliseconds(std::llround(patience_s * 1e3));
}

Result<Policy> WorkerOptions::MakePolicy() const {
  Result<Policy> made = Policy::FromName(policy);
  if (!made.ok()) return made;
  const Result<ValueCode> code = CodeOf(bits);
  if (!code.ok()) return code.error();
  made->momentum = momentum;
  if (policy == "elastic" || policy == "dense") made->push = made->pull = beta;
  if (policy == "dense") return made;
  made->up = {SelectionRule::ChunkTopK(density), *code};
  made->down = {SelectionRule::ChunkTopK(reply_density), *code};
  return made;
}

Result<std::shared_ptr<Schedule>> WorkerOptions::MakeSchedule() const {
  if (when == "period")
    return std::shared_ptr<Schedule>(std::make_shared<Every>(period));
  OnChange::Settings settings;
  settings.share = change;
  // The period is what it does at a steady pace; it may be half or many.
  settings.shortest = std::max<uint64_t>(1, period / 2);
  settings.longest = 8 * period;
  Result<std::unique_ptr<OnChange>> made = OnChange::Make(settings);
  if (!made.ok()) return made.error();
  return std::shared_ptr<Schedule>(std::move(*made));
}

Result<Secret> WorkerOptions::ReadSecret() const {
  return secret_file.empty() ? Secret::FromEnvironment()
                             : Secret::FromFile(secret_file);
}

}  // namespace tensorlightning
