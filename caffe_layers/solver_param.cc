#include "caffe_layers/solver_param.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <caffe/common.hpp>
#include <caffe/util/upgrade_proto.hpp>
#include <optional>
#include <vector>

#include "caffe_layers/ending.h"
#include "caffe_layers/solver_options.h"
#include "caffe_layers/solver_text.h"
#include "caffe_layers/twins.h"

namespace tensorlightning {
namespace {

// Keeps the first error.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!text.empty()) return;
    if (line >= 0) {
      text = std::to_string(line + 1) + ":" + std::to_string(column + 1) + ": ";
    }
    text += message;
  }

  std::string text;
};

// Of several workers rank 0 alone tests, and writes snapshots: they all have
// the same centre, and the same folder.
void LeaveShowingToRank0(caffe::SolverParameter& param) {
  param.clear_test_interval();
  param.clear_test_iter();
  param.clear_test_net();
  param.clear_test_net_param();
  param.clear_test_state();
  param.clear_test_initialization();
  param.clear_snapshot();
  param.set_snapshot_after_train(false);
}

void Adopt(const std::string& name, caffe::SolverParameter& param) {
  const auto& stage = param.train_state().stage();
  const std::vector<std::string> stages(stage.begin(), stage.end());
  const Result<std::optional<SolverOptions>> options =
      SolverOptions::FromStages(stages);
  if (!options.ok()) EndWith(name + ": " + options.error().message);
  if (!options->has_value()) return;
  if (!HasTwin(param.type())) {
    EndWith(name + ": type: \"" + param.type() +
            "\" can't exchange; SGD, Nesterov, AdaGrad, RMSProp, AdaDelta and "
            "Adam can");
  }
  param.set_type(TwinOf(param.type()));
  if ((*options)->worker.rank > 0) LeaveShowingToRank0(param);
}

}  // namespace

Status ParseText(const std::string& name, const std::string& text,
                 google::protobuf::Message& message) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (parser.ParseFromString(text, &message)) return Done{};
  return Error{ErrorCode::kInvalidArgument, name + ":" + error.text};
}

void ParseSolver(const std::string& name, std::string_view text,
                 caffe::SolverParameter& param) {
  const Result<SolverText> cut = SolverText::Cut(text);
  if (!cut.ok()) EndWith(name + ":" + cut.error().message);
  EndUnless(ParseText(name, cut->plain, param));
  if (cut->settings.has_value()) {
    const Result<std::vector<std::string>> stages = ToStages(*cut->settings);
    if (!stages.ok()) EndWith(name + ":" + stages.error().message);
    for (const std::string& stage : *stages) {
      param.mutable_train_state()->add_stage(stage);
    }
  }
  caffe::UpgradeSolverAsNeeded(name, &param);
  Adopt(name, param);
}

}  // namespace tensorlightning
