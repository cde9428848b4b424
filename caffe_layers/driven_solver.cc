#include "caffe_layers/driven_solver.h"

#include <algorithm>
#include <caffe/common.hpp>
#include <caffe/solver_factory.hpp>
#include <caffe/util/upgrade_proto.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "caffe_layers/ending.h"
#include "caffe_layers/solver_param.h"
#include "caffe_layers/twins.h"

namespace tensorlightning {
namespace {

constexpr char kNotANumber[] = "the loss is no number";

caffe::NetParameter ParseNet(const std::string& text) {
  caffe::NetParameter net;
  EndUnless(ParseText("net", text, net));
  caffe::UpgradeNetAsNeeded("net", &net);
  if (net.layer_size() == 0) EndWith("net: has no layers");
  for (const caffe::LayerParameter& layer : net.layer()) {
    if (layer.type() == "Input") {
      EndWith("net: layer '" + layer.name() +
              "' is an Input, which can't be fed: use a MemoryData layer");
    }
  }
  return net;
}

caffe::SolverParameter SolverFor(const std::string& text,
                                 const caffe::NetParameter& net, bool alone) {
  caffe::SolverParameter param;
  ParseSolver("solver", text, param);
  const std::string twin = TwinOf("");
  if (alone && param.type().starts_with(twin)) {
    param.set_type(param.type().substr(twin.size()));
  }
  param.clear_net();
  param.clear_train_net();
  param.clear_train_net_param();
  *param.mutable_net_param() = net;
  param.clear_test_net();
  param.clear_test_net_param();
  param.clear_test_state();
  param.clear_test_iter();
  param.clear_test_interval();
  param.clear_snapshot();
  param.set_snapshot_after_train(false);
  // Who feeds decides when it ends.
  if (!param.has_max_iter())
    param.set_max_iter(std::numeric_limits<int>::max());
  return param;
}

// Caffe itself sets these only from a file.
struct Counters : caffe::Solver<float> {
  static constexpr auto kIteration = &Counters::iter_;
  static constexpr auto kStep = &Counters::current_step_;
};

double LossOf(const caffe::Net<float>& net) {
  double loss = 0.0;
  for (size_t b = 0; b < net.blobs().size(); ++b) {
    const double weight = net.blob_loss_weights()[b];
    if (weight == 0.0) continue;
    const caffe::Blob<float>& blob = *net.blobs()[b];
    for (int i = 0; i < blob.count(); ++i) loss += weight * blob.cpu_data()[i];
  }
  return loss;
}

}  // namespace

class DrivenSolver::InShare {
 public:
  explicit InShare(Share share) { Set(share); }
  ~InShare() { Set(Share{}); }
  InShare(const InShare&) = delete;
  InShare& operator=(const InShare&) = delete;

 private:
  static void Set(Share share) {
    caffe::Caffe::set_solver_count(share.count);
    caffe::Caffe::set_solver_rank(share.rank);
  }
};

DrivenSolver::DrivenSolver(const std::string& solver_text,
                           const std::string& net_text, bool alone)
    : net_param_(ParseNet(net_text)) {
  const caffe::SolverParameter param =
      SolverFor(solver_text, net_param_, alone);
  const InShare restored(share_);
  solver_.reset(caffe::SolverRegistry<float>::CreateSolver(param));
  share_ = {caffe::Caffe::solver_count(), caffe::Caffe::solver_rank()};
  net_ = solver_->net();
  inputs_ = std::make_unique<NetInputs>(*net_);
  net_->add_before_backward(this);
  solver_->SetActionFunction([this] {
    return interrupted_ ? caffe::SolverAction::STOP : caffe::SolverAction::NONE;
  });
}

DrivenSolver::~DrivenSolver() { Close(); }

void DrivenSolver::EndIfClosed() const {
  if (solver_ == nullptr) EndWith("the solver is closed");
}

void DrivenSolver::CreateTest() {
  if (test_ != nullptr) return;
  caffe::NetParameter param = net_param_;
  param.mutable_state()->set_phase(caffe::TEST);
  auto test = std::make_unique<caffe::Net<float>>(param);
  test->ShareTrainedLayersWith(net_.get());
  test_inputs_ = std::make_unique<NetInputs>(*test);
  test_ = std::move(test);
}

void DrivenSolver::Feed(bool test, const std::string& layer, const float* data,
                        const float* labels, int64_t count) {
  if (test) CreateTest();
  EndUnless((test ? test_inputs_ : inputs_)->Feed(layer, data, labels, count));
}

double DrivenSolver::Step(int iterations) {
  EndIfClosed();
  EndUnless(inputs_->AllFed());
  losses_ = 0.0;
  counted_ = 0;
  const InShare shared(share_);
  try {
    solver_->Step(iterations);
  } catch (...) {
    iteration_ = solver_->iter();
    throw;
  }
  iteration_ = solver_->iter();
  return counted_ == 0 ? 0.0 : losses_ / static_cast<double>(counted_);
}

void DrivenSolver::Join(int iteration) {
  EndIfClosed();
  if (solver_->iter() != 0) EndWith("the solver has begun to train already");
  if (iteration < 0) EndWith("iterations are counted from 0 on");
  const InShare shared(share_);
  if (auto* const twin = dynamic_cast<Exchanging*>(solver_.get())) {
    twin->Join();
  }
  const auto& steps = solver_->param().stepvalue();
  (*solver_).*Counters::kIteration = iteration_ = iteration;
  (*solver_).*Counters::kStep = static_cast<int>(std::count_if(
      steps.begin(), steps.end(), [&](int step) { return step <= iteration; }));
}

const char* DrivenSolver::Statistics() {
  if (auto* const twin = dynamic_cast<Exchanging*>(solver_.get())) {
    statistics_ = twin->Statistics();
  }
  return statistics_.c_str();
}

// Not after it: where NaN reaches a MAX pooling, its backward pass writes
// outside of its blob.
void DrivenSolver::run(int layer) {
  if (static_cast<size_t>(layer) + 1 != net_->layers().size()) return;
  const double loss = LossOf(*net_);
  if (!std::isfinite(loss)) {
    EndWith(kNotANumber + std::string(" in iteration ") +
            std::to_string(solver_->iter()) +
            ": the weights are still those before; a smaller base_lr helps "
            "most often");
  }
  losses_ += loss;
  ++counted_;
}

void DrivenSolver::ForwardTest() {
  CreateTest();
  EndUnless(test_inputs_->AllFed());
  test_->Forward();
}

void DrivenSolver::Snapshot(const std::string& path) const {
  caffe::NetParameter param;
  net_->ToProto(&param, false);
  const std::string partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  const bool written = file && param.SerializeToOstream(&file);
  file.close();
  std::error_code error;
  if (written && file) std::filesystem::rename(partial, path, error);
  if (!written || !file || error) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    EndWith(path + ": can't be written");
  }
}

void DrivenSolver::Finish() {
  EndIfClosed();
  const InShare shared(share_);
  if (auto* const twin = dynamic_cast<Exchanging*>(solver_.get())) {
    twin->Finish();
  }
}

void DrivenSolver::Close() {
  Statistics();
  solver_.reset();
}

void CheckSolver(const std::string& solver_text, const std::string& net_text,
                 bool test) {
  DrivenSolver solver(solver_text, net_text, /*alone=*/true);
  if (test) solver.CreateTest();
  std::vector<std::vector<float>> memory;
  for (const NetInput& input : solver.inputs(test)->all()) {
    const int batch = input.memory->batch_size();
    const size_t entries = static_cast<size_t>(batch) *
                           static_cast<size_t>(input.example_entries());
    std::vector<float>& data = memory.emplace_back(entries);
    for (size_t i = 0; i < entries; ++i) {
      data[i] = static_cast<float>(i % 97) / 97.0f;
    }
    const std::vector<float>& labels =
        memory.emplace_back(static_cast<size_t>(batch), 0.0f);
    const float* const examples = memory[memory.size() - 2].data();
    solver.Feed(test, input.layer, examples, labels.data(), batch);
  }
  if (test) {
    solver.ForwardTest();
    return;
  }
  try {
    solver.Step(1);
  } catch (const std::exception& error) {
    // These are not the numbers that it will be given.
    if (!std::string(error.what()).starts_with(kNotANumber)) throw;
  }
}

}  // namespace tensorlightning
