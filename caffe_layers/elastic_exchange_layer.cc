#include "caffe_layers/elastic_exchange_layer.h"

#include <glog/logging.h>

#include <algorithm>
#include <caffe/layer_factory.hpp>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "caffe_layers/ending.h"
#include "caffe_layers/interrupts.h"
#include "caffe_layers/net_blobs.h"
#include "caffe_layers/net_in_making.h"
#include "comm/worker/embedded_aggregators.h"

namespace tensorlightning {
namespace {

constexpr std::chrono::milliseconds kSlice{200};

bool SolverExchanges(const caffe::NetParameter& net) {
  const auto& stage = net.state().stage();
  const std::vector<std::string> stages(stage.begin(), stage.end());
  const Result<std::optional<SolverOptions>> options =
      SolverOptions::FromStages(stages);
  return !options.ok() || options->has_value();
}

}  // namespace

void ElasticExchangeLayer::End(const std::string& reason) const {
  EndWith("layer \"" + layer_param_.name() + "\", ElasticExchange: " + reason);
}

void ElasticExchangeLayer::LayerSetUp(const Blobs& /*bottom*/,
                                      const Blobs& /*top*/) {
  Result<ExchangeLayerOptions> options =
      ExchangeLayerOptions::Parse(layer_param_.python_param().param_str());
  if (!options.ok()) End(options.error().message);
  options_ = std::move(*options);
  options_.exchange.worker.report = 1;
  if (phase_ != caffe::TRAIN) return;
  const NetInMaking making = CurrentNetInMaking();
  if (making.net == nullptr) {
    End("it can't see its net, as Caffe was loaded before the plugin: start "
        "the program with LD_PRELOAD=libtensorlightning_caffe.so");
  }
  if (SolverExchanges(*making.param)) {
    End("the solver exchanges already, as its file has tensorlightning_param: "
        "remove one of the two");
  }
  const auto& layers = making.net->layers();
  const auto exchanging =
      std::count_if(layers.begin(), layers.end(), [this](const auto& layer) {
        return std::string_view(layer->type()) == type();
      });
  if (exchanging > 1) End("there is another one in this net: remove one");
  net_ = making.net;
}

// By now the net is complete.
void ElasticExchangeLayer::Join() {
  const Layout layout = ValueOrEnd(LayoutOf(*net_));
  for (const caffe::Blob<float>* const blob : net_->learnable_params()) {
    for (const auto& param : net_->params()) {
      if (param.get() == blob) learnable_.push_back(param);
    }
  }
  net_ = nullptr;
  const WorkerOptions& options = options_.exchange.worker;
  const std::vector<std::span<float>> weights = Weights();
  worker_ = ValueOrEnd(Worker::Begin(options, layout, weights));
  const InterruptWatch watch;
  while (!ValueOrEnd(worker_->Joined(weights, kSlice))) {
    if (watch.pressed()) End("interrupted while it joined the others");
  }
  LOG(INFO) << "tensorlightning: worker " << worker_->rank() << " of "
            << options.size << " exchanges " << layout.entries()
            << " parameters, policy " << options.policy << ", every "
            << options.period << " forward passes";
}

std::vector<std::span<float>> ElasticExchangeLayer::Weights() const {
  std::vector<std::span<float>> spans;
  spans.reserve(learnable_.size());
  for (const auto& blob : learnable_) {
    spans.emplace_back(blob->mutable_cpu_data(),
                       static_cast<size_t>(blob->count()));
  }
  return spans;
}

void ElasticExchangeLayer::Pass() {
  if (phase_ != caffe::TRAIN || finished_) return;
  if (worker_ == nullptr) {
    Join();
    return;
  }
  ValueOrEnd(worker_->Step(Weights(), 1));
  if (++steps_ == options_.steps) Finish();
}

void ElasticExchangeLayer::Finish() {
  finished_ = true;
  const Status status =
      worker_->FinishTogether(Weights(), options_.exchange.own);
  if (!status.ok()) {
    LOG(ERROR) << "tensorlightning: ends with this worker's own model: "
               << status.error().message;
  }
  LOG(INFO) << "tensorlightning: " << worker_->StatisticsJson();
  worker_.reset();
}

ElasticExchangeLayer::~ElasticExchangeLayer() {
  if (worker_ != nullptr) {
    // Nobody sees these weights any more; others may want what they have
    // learned.
    const Status status = worker_->Finish(Weights(), /*own=*/true);
    if (!status.ok()) {
      LOG(ERROR) << "tensorlightning: no last exchange: "
                 << status.error().message;
    }
    worker_.reset();
    finished_ = true;
  }
  if (finished_) {
    StopEmbeddedAggregators(options_.exchange.worker.patience(),
                            [] { return false; });
  }
}

namespace {

const caffe::LayerRegisterer<float> kRegistered(
    "ElasticExchange", [](const caffe::LayerParameter& param) {
      return boost::shared_ptr<caffe::Layer<float>>(
          new ElasticExchangeLayer(param));
    });

}  // namespace
}  // namespace tensorlightning
