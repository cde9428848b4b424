// What a solver is told about its exchange. Inside Caffe the settings travel as
// stages of the solver's train_state, which stock Caffe accepts and ignores:
//
//   train_state { stage: "tensorlightning.period=20" }
//
// So a file with those, instead of the block, works with and without the plugin
// (just "tensorlightning" if all settings are the defaults). Knows no Caffe.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_SOLVER_OPTIONS_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_SOLVER_OPTIONS_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "caffe_layers/solver_text.h"
#include "comm/worker/worker_options.h"
#include "kernels/result.h"

namespace tensorlightning {

struct SolverOptions {
  WorkerOptions worker;
  // model: "own": tests and snapshots are of this worker's own model, and not
  // of the centre.
  bool own = false;

  // None: no stage is one of ours.
  static Result<std::optional<SolverOptions>> FromStages(
      std::span<const std::string> stages);
};

// The stages of a block. Errors begin with the line of the setting: "12: ...".
Result<std::vector<std::string>> ToStages(
    std::span<const SolverSetting> settings);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_SOLVER_OPTIONS_H_
