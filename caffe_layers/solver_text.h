// The one block that a user adds to solver.prototxt, cut out of the text:
//
//   base_lr: 0.01
//   tensorlightning_param { period: 20 density: 0.02 policy: "local" }
//
// What remains is a solver file as Caffe knows it, with every other character
// where it was: line numbers in Caffe's own messages stay true.
//
// Knows protobuf's text format as far as it must: comments, strings, brackets.
// Knows no Caffe.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_SOLVER_TEXT_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_SOLVER_TEXT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.h"

namespace tensorlightning {

inline constexpr std::string_view kSettingsBlock = "tensorlightning_param";

struct SolverSetting {
  std::string name;
  std::string value;  // Of a string: what is between its quotes.
  int line = 0;       // From 1 on.

  bool operator==(const SolverSetting&) const = default;
};

struct SolverText {
  std::string plain;
  // None: there is no such block.
  std::optional<std::vector<SolverSetting>> settings;

  // Errors begin with the line: "12: ...".
  static Result<SolverText> Cut(std::string_view text);
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_SOLVER_TEXT_H_
