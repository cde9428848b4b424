#include "caffe_layers/solver_exchange.h"

#include <glog/logging.h>

#include <algorithm>
#include <caffe/util/io.hpp>
#include <filesystem>
#include <utility>

#include "caffe_layers/ending.h"
#include "caffe_layers/net_blobs.h"
#include "comm/worker/embedded_aggregators.h"

namespace tensorlightning {
namespace {

constexpr std::chrono::milliseconds kSlice{200};

std::vector<std::vector<float>> CopyOf(Tensors tensors) {
  std::vector<std::vector<float>> copy;
  copy.reserve(tensors.size());
  for (const std::span<float> tensor : tensors) {
    copy.emplace_back(tensor.begin(), tensor.end());
  }
  return copy;
}

void CopyTo(const std::vector<std::vector<float>>& copy, Tensors tensors) {
  for (size_t i = 0; i < copy.size(); ++i) {
    std::copy(copy[i].begin(), copy[i].end(), tensors[i].begin());
  }
}

}  // namespace

SolverExchange::SolverExchange(SolverOptions options, caffe::Net<float>& net,
                               std::function<bool()> stopped)
    : options_(std::move(options)), net_(net), stopped_(std::move(stopped)) {}

SolverExchange::~SolverExchange() {
  worker_.reset();
  StopEmbeddedAggregators(options_.worker.patience(), stopped_);
}

void SolverExchange::Join() {
  const Layout layout = ValueOrEnd(LayoutOf(net_));
  const std::vector<std::span<float>> weights = WeightsOf(net_);
  worker_ =
      ValueOrEnd(Worker::Begin(options_.worker, layout, weights, stopped_));
  while (!ValueOrEnd(worker_->Joined(weights, kSlice))) {
    if (stopped_()) {
      worker_.reset();
      return;
    }
  }
  if (!restored_.empty()) CopyTo(std::exchange(restored_, {}), weights);
  LOG(INFO) << "tensorlightning: worker " << worker_->rank() << " of "
            << options_.worker.size << " exchanges " << layout.entries()
            << " parameters, policy " << options_.worker.policy << ", every "
            << options_.worker.period << " iterations";
}

void SolverExchange::OnStart() {
  if (finished_) return;
  if (worker_ == nullptr) {
    Join();
  } else {
    TakeBack();
  }
}

void SolverExchange::OnGradientsReady() {
  if (worker_ == nullptr || finished_ || !options_.worker.is_gradient()) return;
  const Status status = worker_->AverageGradients(GradientsOf(net_));
  // Who wants to stop does so after this step, with its own gradients.
  if (!status.ok() && !stopped_()) EndWith(status.error().message);
}

void SolverExchange::AfterUpdate(const Update& update) {
  if (worker_ == nullptr || finished_) return;
  const std::vector<std::span<float>> weights = WeightsOf(net_);
  worker_->set_loss(update.loss);
  ValueOrEnd(worker_->Step(weights, 1));
  if (update.last) {
    const Status finished = Finish();
    if (!finished.ok()) {
      LOG(ERROR) << "tensorlightning: ends with this worker's own model: "
                 << finished.error().message;
    }
  } else if (update.shown && !options_.own) {
    LendToCentre();
  }
}

Status SolverExchange::Finish() {
  if (worker_ == nullptr || finished_) return Done{};
  TakeBack();
  finished_ = true;
  Status status = worker_->FinishTogether(WeightsOf(net_), options_.own);
  last_statistics_ = worker_->StatisticsJson();
  LOG(INFO) << "tensorlightning: " << last_statistics_;
  worker_.reset();
  return status;
}

std::string SolverExchange::Statistics() const {
  return worker_ == nullptr ? last_statistics_ : worker_->StatisticsJson();
}

void SolverExchange::LendToCentre() {
  const std::vector<std::span<float>> weights = WeightsOf(net_);
  own_ = CopyOf(weights);
  const std::vector<std::span<float>> own(own_.begin(), own_.end());
  const Status status = worker_->Show(own, weights);
  if (!status.ok()) {
    TakeBack();
    LOG(WARNING) << "tensorlightning: the centre is out of reach, so this "
                    "worker's own model is shown: "
                 << status.error().message;
  }
}

void SolverExchange::TakeBack() {
  if (!own_.empty()) CopyTo(std::exchange(own_, {}), WeightsOf(net_));
}

std::string SolverExchange::StateFile(const std::string& solver_state) const {
  const uint32_t rank =
      static_cast<uint32_t>(std::max(options_.worker.rank, 0));
  return solver_state + ".tensorlightning." + std::to_string(rank);
}

void SolverExchange::SaveState(const std::string& solver_state) const {
  if (own_.empty()) {
    // The snapshot itself has them; what another training left is not ours.
    std::error_code ignored;
    std::filesystem::remove(StateFile(solver_state), ignored);
    return;
  }
  caffe::BlobProtoVector state;
  for (const std::vector<float>& values : own_) {
    caffe::BlobProto* const blob = state.add_blobs();
    blob->mutable_data()->Add(values.begin(), values.end());
  }
  caffe::WriteProtoToBinaryFile(state, StateFile(solver_state));
}

void SolverExchange::RestoreState(const std::string& solver_state) {
  const std::string file = StateFile(solver_state);
  if (!std::filesystem::exists(file)) return;
  caffe::BlobProtoVector state;
  if (!caffe::ReadProtoFromBinaryFile(file, &state)) {
    EndWith(file + " can't be read, or is no state of a worker");
  }
  const std::vector<std::span<float>> weights = WeightsOf(net_);
  Copy copy;
  for (const caffe::BlobProto& blob : state.blobs()) {
    copy.emplace_back(blob.data().begin(), blob.data().end());
  }
  const bool fits = std::equal(
      copy.begin(), copy.end(), weights.begin(), weights.end(),
      [](const auto& a, const auto& b) { return a.size() == b.size(); });
  if (!fits) EndWith(file + " is the state of another net");
  restored_ = std::move(copy);
}

}  // namespace tensorlightning
