#include "caffe_layers/driver_inputs.h"

#include <cmath>
#include <limits>
#include <map>

namespace tensorlightning {
namespace {

Error Wrong(const std::string& what) {
  return {ErrorCode::kInvalidArgument, what};
}

// Layers whose second bottom is the number of a class on an axis of the first.
struct ClassLayer {
  int axis = 1;
  std::optional<int> ignored;
};

std::optional<ClassLayer> AsClassLayer(const caffe::LayerParameter& layer) {
  if (layer.bottom_size() < 2) return std::nullopt;
  const auto& loss = layer.loss_param();
  const auto& accuracy = layer.accuracy_param();
  if (layer.type() == "SoftmaxWithLoss" || layer.type() == "InfogainLoss") {
    ClassLayer result;
    result.axis = layer.type() == "SoftmaxWithLoss"
                      ? layer.softmax_param().axis()
                      : layer.infogain_loss_param().axis();
    if (loss.has_ignore_label()) result.ignored = loss.ignore_label();
    return result;
  }
  if (layer.type() == "Accuracy") {
    ClassLayer result;
    result.axis = accuracy.axis();
    if (accuracy.has_ignore_label()) result.ignored = accuracy.ignore_label();
    return result;
  }
  if (layer.type() == "MultinomialLogisticLoss" ||
      layer.type() == "HingeLoss") {
    return ClassLayer{};
  }
  return std::nullopt;
}

// Blobs that several layers use are split: the blob each came from.
std::map<std::string, std::string> Origins(const caffe::Net<float>& net) {
  std::map<std::string, std::string> origins;
  for (const auto& layer : net.layers()) {
    const caffe::LayerParameter& param = layer->layer_param();
    if (param.type() != "Split") continue;
    for (const std::string& top : param.top()) origins[top] = param.bottom(0);
  }
  return origins;
}

void LimitLabels(const caffe::Net<float>& net, const std::string& label,
                 NetInput& input) {
  std::map<std::string, std::string> origins = Origins(net);
  for (size_t l = 0; l < net.layers().size(); ++l) {
    const caffe::LayerParameter& param = net.layers()[l]->layer_param();
    const std::optional<ClassLayer> classes = AsClassLayer(param);
    if (!classes.has_value()) continue;
    const auto origin = origins.find(param.bottom(1));
    const std::string& used =
        origin == origins.end() ? param.bottom(1) : origin->second;
    if (used != label) continue;
    const int count = net.bottom_vecs()[l][0]->shape(classes->axis);
    input.uses.push_back({count, classes->ignored});
  }
}

Status CheckLabels(const NetInput& input, const float* labels, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float label = labels[i];
    if (!std::isfinite(label)) {
      return Wrong("label " + std::to_string(i) + " is no number");
    }
    // Each of them reads outside of its blob otherwise.
    for (const NetInput::Use& use : input.uses) {
      if (use.ignored.has_value() &&
          label == static_cast<float>(*use.ignored)) {
        continue;
      }
      if (label < 0.0f || label >= static_cast<float>(use.classes)) {
        return Wrong("label " + std::to_string(i) + " is " +
                     std::to_string(label) + ": the net has classes 0 to " +
                     std::to_string(use.classes - 1));
      }
    }
  }
  return Done{};
}

}  // namespace

NetInputs::NetInputs(const caffe::Net<float>& net) {
  for (size_t l = 0; l < net.layers().size(); ++l) {
    caffe::Layer<float>* const layer = net.layers()[l].get();
    if (std::string(layer->type()) != "MemoryData") continue;
    NetInput input{net.layer_names()[l],
                   static_cast<caffe::MemoryDataLayer<float>*>(layer),
                   {}};
    LimitLabels(net, layer->layer_param().top(1), input);
    inputs_.push_back(std::move(input));
  }
}

std::string NetInputs::Names() const {
  std::string names;
  for (const NetInput& input : inputs_) {
    names += (names.empty() ? "" : ", ") + input.layer;
  }
  return names.empty() ? "none" : names;
}

Result<NetInput*> NetInputs::Find(const std::string& layer) {
  if (layer.empty() && inputs_.size() == 1) return &inputs_[0];
  for (NetInput& input : inputs_) {
    if (input.layer == layer) return &input;
  }
  const std::string named = layer.empty() ? "one" : "'" + layer + "'";
  return Wrong("which MemoryData layer is to be fed? " + named +
               " was asked for, and in this phase the net has: " + Names());
}

Status NetInputs::Feed(const std::string& layer, const float* data,
                       const float* labels, int64_t count) {
  const Result<NetInput*> found = Find(layer);
  if (!found.ok()) return found.error();
  NetInput& input = **found;
  const int batch = input.memory->batch_size();
  if (count <= 0 || count % batch != 0 ||
      count > std::numeric_limits<int>::max()) {
    return Wrong(std::to_string(count) + " examples for layer '" + input.layer +
                 "': it takes a multiple of its batch of " +
                 std::to_string(batch));
  }
  const int64_t entries = count * input.example_entries();
  for (int64_t i = 0; i < entries; ++i) {
    if (!std::isfinite(data[i])) {
      return Error{ErrorCode::kNotFinite,
                   "example " + std::to_string(i / input.example_entries()) +
                       " for layer '" + input.layer +
                       "' has an entry that is no number"};
    }
  }
  const Status good = CheckLabels(input, labels, count);
  if (!good.ok()) return good.error();
  // Given to a blob, which could be written to; this layer's is not.
  input.memory->Reset(const_cast<float*>(data), const_cast<float*>(labels),
                      static_cast<int>(count));
  input.fed = true;
  return Done{};
}

Status NetInputs::AllFed() const {
  for (const NetInput& input : inputs_) {
    if (!input.fed) {
      return Wrong("layer '" + input.layer +
                   "' has no data yet: feed it before the first step");
    }
  }
  return Done{};
}

}  // namespace tensorlightning
