// What the layer ElasticExchange is told, in python_param { param_str: "..." }:
// the settings of tensorlightning_param, and `steps`:
//
//   "period=20 density=0.02 steps=1000"
//
// Knows no Caffe.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_EXCHANGE_LAYER_OPTIONS_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_EXCHANGE_LAYER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "caffe_layers/solver_options.h"
#include "kernels/result.h"

namespace tensorlightning {

struct ExchangeLayerOptions {
  SolverOptions exchange;
  // After so many it ends with what all have learned; none: with the net.
  std::optional<uint64_t> steps;

  // Separated by blanks, tabs or newlines.
  static Result<ExchangeLayerOptions> Parse(std::string_view text);
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_EXCHANGE_LAYER_OPTIONS_H_
