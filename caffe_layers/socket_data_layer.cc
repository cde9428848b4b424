#include "caffe_layers/socket_data_layer.h"

#include <glog/logging.h>

#include <caffe/layer_factory.hpp>
#include <caffe/util/math_functions.hpp>
#include <utility>

#include "caffe_layers/ending.h"
#include "caffe_layers/feed_address.h"
#include "caffe_layers/feed_socket.h"
#include "comm/worker/worker_options.h"

namespace tensorlightning {
namespace {

constexpr uint32_t kMostPrefetched = 1000;  // Batches.

}  // namespace

void SocketDataLayer::End(const std::string& reason) const {
  EndWith("layer \"" + layer_param_.name() + "\", SocketData" +
          (from_.empty() ? "" : " from " + from_) + ": " + reason);
}

std::vector<FeedShape> SocketDataLayer::ShapesOf(const Blobs& top) const {
  const caffe::InputParameter& param = layer_param_.input_param();
  if (param.shape_size() != static_cast<int>(top.size())) {
    End("it has " + std::to_string(top.size()) + " tops and " +
        std::to_string(param.shape_size()) +
        " shapes: input_param { shape { dim: 1 dim: 28 dim: 28 } shape { } } "
        "has one of each top's records, without the batch");
  }
  std::vector<FeedShape> shapes;
  for (const caffe::BlobShape& given : param.shape()) {
    FeedShape& shape = shapes.emplace_back();
    int64_t values = layer_param_.data_param().batch_size();
    for (const int64_t dim : given.dim()) {
      if (dim <= 0 || dim > INT32_MAX / values) {
        End("dim: " + std::to_string(dim) +
            " is out of range: a batch has 1 to 2^31 - 1 values");
      }
      values *= dim;
      shape.push_back(static_cast<uint32_t>(dim));
    }
  }
  return shapes;
}

void SocketDataLayer::CheckTransform() const {
  caffe::TransformationParameter others = layer_param_.transform_param();
  others.clear_scale();
  if (others.ByteSizeLong() > 0) {
    End("of transform_param it knows scale only; the feeder may do the rest");
  }
}

void SocketDataLayer::LayerSetUp(const Blobs& /*bottom*/, const Blobs& top) {
  const caffe::DataParameter& param = layer_param_.data_param();
  CheckTransform();
  if (param.batch_size() == 0 || param.batch_size() > INT32_MAX ||
      param.prefetch() == 0 || param.prefetch() > kMostPrefetched) {
    End("data_param's batch_size must be 1 or more, and prefetch 1 to " +
        std::to_string(kMostPrefetched));
  }
  FeedPlan plan{ShapesOf(top), param.batch_size(), param.prefetch()};
  for (size_t i = 0; i < top.size(); ++i) {
    std::vector<int> shape{static_cast<int>(plan.batch)};
    shape.insert(shape.end(), plan.shapes[i].begin(), plan.shapes[i].end());
    top[i]->Reshape(shape);
  }
  const WorkerOptions options = ValueOrEnd(WorkerOptions::Parse(""));
  const Result<Endpoint> endpoint =
      FeedAddress(param.source(), options.rank, options.size);
  if (!endpoint.ok()) End(endpoint.error().message);
  from_ = endpoint->ToString();
  Result<std::unique_ptr<FeedSocket>> socket =
      FeedSocket::Connect(*endpoint, options.patience());
  if (!socket.ok()) End(socket.error().message);
  Result<std::unique_ptr<FeedPrefetch>> feed =
      FeedPrefetch::Start(std::move(*socket), std::move(plan));
  if (!feed.ok()) End(feed.error().message);
  feed_ = std::move(*feed);
  LOG(INFO) << "tensorlightning: " << layer_param_.name() << " is fed by "
            << from_;
}

const FeedBatch& SocketDataLayer::NextBatch() {
  const Result<const FeedBatch*> batch = feed_->Next();
  if (!batch.ok()) End(batch.error().message);
  if ((*batch)->epochs != epochs_) {
    epochs_ = (*batch)->epochs;
    LOG(INFO) << "tensorlightning: " << layer_param_.name()
              << " has read all of epoch " << epochs_;
  }
  return **batch;
}

void SocketDataLayer::Forward_cpu(const Blobs& /*bottom*/, const Blobs& top) {
  const FeedBatch& batch = NextBatch();
  for (size_t i = 0; i < top.size(); ++i) {
    caffe::caffe_copy(top[i]->count(), batch.tops[i].data(),
                      top[i]->mutable_cpu_data());
  }
  top[0]->scale_data(layer_param_.transform_param().scale());
}

namespace {

const caffe::LayerRegisterer<float> kRegistered(
    "SocketData", [](const caffe::LayerParameter& param) {
      return boost::shared_ptr<caffe::Layer<float>>(new SocketDataLayer(param));
    });

}  // namespace
}  // namespace tensorlightning
