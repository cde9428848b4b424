#include "caffe_layers/net_blobs.h"

#include <map>
#include <string>
#include <utility>

namespace tensorlightning {
namespace {

// Learnable blobs are those of their owners: the first layer that has one.
std::string NameOf(const caffe::Net<float>& net,
                   const caffe::Blob<float>* blob) {
  for (size_t l = 0; l < net.layers().size(); ++l) {
    const auto& blobs = net.layers()[l]->blobs();
    for (size_t b = 0; b < blobs.size(); ++b) {
      if (blobs[b].get() == blob) {
        return net.layer_names()[l] + "/" + std::to_string(b);
      }
    }
  }
  return "?";
}

template <typename Data>
std::vector<std::span<float>> Spans(const caffe::Net<float>& net, Data data) {
  std::vector<std::span<float>> spans;
  spans.reserve(net.learnable_params().size());
  for (caffe::Blob<float>* const blob : net.learnable_params()) {
    spans.emplace_back(data(*blob), static_cast<size_t>(blob->count()));
  }
  return spans;
}

}  // namespace

Result<Layout> LayoutOf(const caffe::Net<float>& net) {
  std::vector<Tensor> tensors;
  std::map<std::string, int> used;
  for (const caffe::Blob<float>* const blob : net.learnable_params()) {
    // Layers may have the same name, or none.
    std::string name = NameOf(net, blob);
    const int times = ++used[name];
    if (times > 1) name += "#" + std::to_string(times);
    tensors.push_back(
        {std::move(name), {blob->shape().begin(), blob->shape().end()}});
  }
  return Layout::Make(std::move(tensors));
}

std::vector<std::span<float>> WeightsOf(const caffe::Net<float>& net) {
  return Spans(net, [](auto& blob) { return blob.mutable_cpu_data(); });
}

std::vector<std::span<float>> GradientsOf(const caffe::Net<float>& net) {
  return Spans(net, [](auto& blob) { return blob.mutable_cpu_diff(); });
}

}  // namespace tensorlightning
