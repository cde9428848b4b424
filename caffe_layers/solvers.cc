// The six solvers of Caffe, each with a twin that exchanges: the same class,
// and a few calls. Settings are in the stages of its train_state.
#include <caffe/sgd_solvers.hpp>
#include <caffe/solver_factory.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "caffe_layers/ending.h"
#include "caffe_layers/solver_exchange.h"
#include "caffe_layers/solver_options.h"
#include "caffe_layers/twins.h"

namespace tensorlightning {
namespace {

SolverOptions OptionsOf(const caffe::SolverParameter& param) {
  const auto& stage = param.train_state().stage();
  const std::vector<std::string> stages(stage.begin(), stage.end());
  std::optional<SolverOptions> options =
      ValueOrEnd(SolverOptions::FromStages(stages));
  if (!options.has_value()) options.emplace();
  options->worker.report = 1;
  return *options;
}

template <typename Base>
class Twin final : public Base,
                   public Exchanging,
                   private caffe::Solver<float>::Callback {
 public:
  Twin(const caffe::SolverParameter& param, SolverOptions options)
      : Base(param), exchange_(std::move(options), *this->net_, [this] {
          return Stopped();
        }) {
    this->add_callback(this);
  }

  void Solve(const char* resume_file) override {
    // What the user wants is told once, to whoever asks first: so it is kept
    // until Caffe asks.
    given_ = this->action_request_function_;
    this->action_request_function_ = [this] {
      Look();
      return std::exchange(wanted_, caffe::SolverAction::NONE);
    };
    if (caffe::Caffe::root_solver()) {
      Base::Solve(resume_file);
    } else {
      // What that does besides is testing and showing.
      if (resume_file != nullptr) this->Restore(resume_file);
      this->Step(this->param_.max_iter() - this->iter_);
    }
  }

  void Join() override { exchange_.OnStart(); }
  std::string Statistics() const override { return exchange_.Statistics(); }
  void Finish() override { EndUnless(exchange_.Finish()); }

  void ApplyUpdate() override {
    // Some versions count here, some afterwards.
    const int next = this->iter_ + 1;
    Base::ApplyUpdate();
    const caffe::SolverParameter& param = this->param_;
    const auto is_due = [next](int interval) {
      return interval > 0 && next % interval == 0;
    };
    Look();
    exchange_.AfterUpdate({.last = next >= param.max_iter(),
                           .shown = is_due(param.test_interval()) ||
                                    is_due(param.snapshot()) ||
                                    wanted_ != caffe::SolverAction::NONE,
                           .loss = this->smoothed_loss_});
  }

 protected:
  void SnapshotSolverState(const std::string& model_filename) override {
    Base::SnapshotSolverState(model_filename);
    exchange_.SaveState(this->SnapshotFilename(StateSuffix()));
  }
  void RestoreSolverStateFromBinaryProto(const std::string& file) override {
    Base::RestoreSolverStateFromBinaryProto(file);
    exchange_.RestoreState(file);
  }
  void RestoreSolverStateFromHDF5(const std::string& file) override {
    Base::RestoreSolverStateFromHDF5(file);
    exchange_.RestoreState(file);
  }

 private:
  void on_start() override { exchange_.OnStart(); }
  void on_gradients_ready() override { exchange_.OnGradientsReady(); }

  const char* StateSuffix() const {
    return this->param_.snapshot_format() ==
                   caffe::SolverParameter_SnapshotFormat_HDF5
               ? ".solverstate.h5"
               : ".solverstate";
  }
  void Look() {
    if (!given_ || wanted_ == caffe::SolverAction::STOP) return;
    const caffe::SolverAction::Enum action = given_();
    // Rank 0 alone takes snapshots.
    const bool ours =
        action != caffe::SolverAction::SNAPSHOT || caffe::Caffe::root_solver();
    if (action != caffe::SolverAction::NONE && ours) wanted_ = action;
  }
  bool Stopped() {
    // Who drives the steps itself says so as long as it means it.
    if (!given_) {
      return this->GetRequestedAction() == caffe::SolverAction::STOP;
    }
    Look();
    return wanted_ == caffe::SolverAction::STOP;
  }

  caffe::ActionCallback given_;
  caffe::SolverAction::Enum wanted_ = caffe::SolverAction::NONE;
  SolverExchange exchange_;
};

// Caffe's data layers skip what belongs to other solvers of the same process:
// so they do with other processes, and every worker trains on its own share of
// an LMDB or HDF5 source. The first solver alone tests, displays and snapshots.
void TakeShare(const WorkerOptions& options) {
  if (caffe::Caffe::solver_count() > 1) {
    EndWith(
        "several GPUs in one worker: start one worker for each, with tlrun");
  }
  if (options.size <= 1) return;
  if (options.rank < 0 || options.rank >= static_cast<int>(options.size)) {
    EndWith("rank=" + std::to_string(options.rank) + " of " +
            std::to_string(options.size) + " workers: TL_RANK must say which");
  }
  caffe::Caffe::set_solver_count(static_cast<int>(options.size));
  caffe::Caffe::set_solver_rank(options.rank);
}

template <typename Base>
caffe::Solver<float>* Make(const caffe::SolverParameter& param) {
  SolverOptions options = OptionsOf(param);
  TakeShare(options.worker);
  return new Twin<Base>(param, std::move(options));
}

const bool kRegistered = [] {
  using Registry = caffe::SolverRegistry<float>;
  Registry::AddCreator(TwinOf("SGD"), Make<caffe::SGDSolver<float>>);
  Registry::AddCreator(TwinOf("Nesterov"), Make<caffe::NesterovSolver<float>>);
  Registry::AddCreator(TwinOf("AdaGrad"), Make<caffe::AdaGradSolver<float>>);
  Registry::AddCreator(TwinOf("RMSProp"), Make<caffe::RMSPropSolver<float>>);
  Registry::AddCreator(TwinOf("AdaDelta"), Make<caffe::AdaDeltaSolver<float>>);
  Registry::AddCreator(TwinOf("Adam"), Make<caffe::AdamSolver<float>>);
  return true;
}();

}  // namespace

bool HasTwin(const std::string& type) {
  return caffe::SolverRegistry<float>::Registry().count(TwinOf(type)) > 0;
}

}  // namespace tensorlightning
