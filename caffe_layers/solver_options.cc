#include "caffe_layers/solver_options.h"

#include <string_view>
#include <utility>

namespace tensorlightning {
namespace {

constexpr std::string_view kStage = "tensorlightning";

Status Apply(std::string_view setting, SolverOptions& options,
             std::string& native) {
  const size_t equals = setting.find('=');
  const std::string_view name = setting.substr(0, equals);
  const std::string_view value =
      equals == std::string_view::npos ? "" : setting.substr(equals + 1);
  if (name != "model") {
    if (!WorkerOptions::Has(name)) {
      return WorkerOptions::NoSetting(name, " model");
    }
    native += std::string(setting) + "\n";
    return Done{};
  }
  if (value != "own" && value != "centre") {
    return Error{ErrorCode::kInvalidArgument,
                 "model=" + std::string(value) + ": it is centre or own"};
  }
  options.own = value == "own";
  return Done{};
}

}  // namespace

Result<std::optional<SolverOptions>> SolverOptions::FromStages(
    std::span<const std::string> stages) {
  SolverOptions options;
  std::string native;
  bool found = false;
  for (const std::string& stage : stages) {
    std::string_view rest = stage;
    if (!rest.starts_with(kStage)) continue;
    rest.remove_prefix(kStage.size());
    if (!rest.empty() && rest.front() != '.') continue;
    found = true;
    if (rest.empty()) continue;
    const Status status = Apply(rest.substr(1), options, native);
    if (!status.ok()) return status.error();
  }
  if (!found) return std::optional<SolverOptions>();
  Result<WorkerOptions> worker = WorkerOptions::Parse(native);
  if (!worker.ok()) return worker.error();
  options.worker = std::move(*worker);
  return std::optional(std::move(options));
}

Result<std::vector<std::string>> ToStages(
    std::span<const SolverSetting> settings) {
  std::vector<std::string> stages{std::string(kStage)};
  // What is wrong without any of them is not wrong because of the first.
  Result<std::optional<SolverOptions>> good = SolverOptions::FromStages(stages);
  if (!good.ok()) {
    return Error{good.error().code, " by TL_* variables, or tlrun's options: " +
                                        good.error().message};
  }
  for (const SolverSetting& setting : settings) {
    stages.push_back(std::string(kStage) + "." + setting.name + "=" +
                     setting.value);
    good = SolverOptions::FromStages(stages);
    if (!good.ok()) {
      return Error{good.error().code,
                   std::to_string(setting.line) + ": " + good.error().message};
    }
  }
  return stages;
}

}  // namespace tensorlightning
