// The layer ElasticExchange: a net that exchanges by itself, whatever program
// drives it. It has no bottoms and no tops, and is put first:
//
//   layer {
//     name: "exchange" type: "ElasticExchange"
//     python_param { param_str: "period=20 steps=1000" }
//   }
//
// Each forward pass of a net in phase TRAIN is taken for one step: the first
// one joins, and gives the net everybody's weights; each later one, which comes
// after an update, exchanges when it is time. The one after `steps` steps ends
// that: last exchange, everybody's model into the net. Without `steps` there is
// a last exchange when the net is destroyed.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_ELASTIC_EXCHANGE_LAYER_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_ELASTIC_EXCHANGE_LAYER_H_

#include <caffe/layer.hpp>
#include <caffe/net.hpp>
#include <memory>
#include <string>
#include <vector>

#include "caffe_layers/exchange_layer_options.h"
#include "comm/worker/worker.h"

namespace tensorlightning {

class ElasticExchangeLayer final : public caffe::Layer<float> {
 public:
  using Blobs = std::vector<caffe::Blob<float>*>;

  explicit ElasticExchangeLayer(const caffe::LayerParameter& param)
      : Layer(param) {}
  ~ElasticExchangeLayer() override;

  void LayerSetUp(const Blobs& bottom, const Blobs& top) override;
  void Reshape(const Blobs& /*bottom*/, const Blobs& /*top*/) override {}

  const char* type() const override { return "ElasticExchange"; }
  int ExactNumBottomBlobs() const override { return 0; }
  int ExactNumTopBlobs() const override { return 0; }

 protected:
  void Forward_cpu(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    Pass();
  }
  void Backward_cpu(const Blobs& /*top*/, const std::vector<bool>& /*down*/,
                    const Blobs& /*bottom*/) override {}
#ifndef CPU_ONLY
  // In elastic_exchange_layer.cu.
  void Forward_gpu(const Blobs& bottom, const Blobs& top) override;
  void Backward_gpu(const Blobs& /*top*/, const std::vector<bool>& /*down*/,
                    const Blobs& /*bottom*/) override {}
#endif

 private:
  void Pass();
  void Join();
  void Finish();
  std::vector<std::span<float>> Weights() const;
  [[noreturn]] void End(const std::string& reason) const;

  ExchangeLayerOptions options_;
  const caffe::Net<float>* net_ = nullptr;  // Until it has joined.
  // The net's own list of them is gone when its layers are destroyed.
  std::vector<boost::shared_ptr<caffe::Blob<float>>> learnable_;
  std::unique_ptr<Worker> worker_;
  uint64_t steps_ = 0;
  bool finished_ = false;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_ELASTIC_EXCHANGE_LAYER_H_
