#include "caffe_layers/exchange_layer_options.h"

#include <charconv>
#include <string>
#include <utility>
#include <vector>

namespace tensorlightning {
namespace {

constexpr std::string_view kBlanks = " \t\n\r";
constexpr std::string_view kSteps = "steps=";

Error Bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

}  // namespace

Result<ExchangeLayerOptions> ExchangeLayerOptions::Parse(
    std::string_view text) {
  ExchangeLayerOptions options;
  std::vector<std::string> stages{"tensorlightning"};
  for (size_t begin = text.find_first_not_of(kBlanks);
       begin != std::string_view::npos;
       begin = text.find_first_not_of(kBlanks)) {
    text.remove_prefix(begin);
    const std::string_view setting =
        text.substr(0, text.find_first_of(kBlanks));
    text.remove_prefix(setting.size());
    if (!setting.starts_with(kSteps)) {
      stages.push_back("tensorlightning." + std::string(setting));
      continue;
    }
    const std::string_view value = setting.substr(kSteps.size());
    uint64_t steps = 0;
    const auto [end, error] =
        std::from_chars(value.begin(), value.end(), steps);
    if (error != std::errc() || end != value.end() || steps == 0) {
      return Bad(std::string(setting) + ": it is a whole number, 1 or more");
    }
    options.steps = steps;
  }
  Result<std::optional<SolverOptions>> exchange =
      SolverOptions::FromStages(stages);
  if (!exchange.ok()) return exchange.error();
  options.exchange = std::move(**exchange);
  if (options.exchange.worker.is_gradient()) {
    return Bad("policy=" + options.exchange.worker.policy +
               ": a layer exchanges weights, and gradients are averaged by "
               "the solver: tensorlightning_param in its file");
  }
  return options;
}

}  // namespace tensorlightning
