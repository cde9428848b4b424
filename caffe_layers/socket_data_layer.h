// The layer SocketData: records come over a socket from another program, in the
// format of feed_format.h.
//
//   layer {
//     name: "data" type: "SocketData" top: "data" top: "label"
//     data_param { source: "unix:/tmp/feed.{rank}.sock" batch_size: 64 }
//     input_param { shape { dim: 1 dim: 28 dim: 28 } shape { } }
//   }
//
// Connects, and checks the feeder's hello, when the net is made; reads
// data_param's prefetch batches ahead. transform_param's scale is for the first
// top, as elsewhere in Caffe. Whatever is wrong ends the program with a
// sentence.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_SOCKET_DATA_LAYER_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_SOCKET_DATA_LAYER_H_

#include <caffe/layer.hpp>
#include <memory>
#include <string>
#include <vector>

#include "caffe_layers/feed_prefetch.h"

namespace tensorlightning {

class SocketDataLayer final : public caffe::Layer<float> {
 public:
  using Blobs = std::vector<caffe::Blob<float>*>;

  explicit SocketDataLayer(const caffe::LayerParameter& param) : Layer(param) {}

  void LayerSetUp(const Blobs& bottom, const Blobs& top) override;
  void Reshape(const Blobs& /*bottom*/, const Blobs& /*top*/) override {}

  const char* type() const override { return "SocketData"; }
  int ExactNumBottomBlobs() const override { return 0; }
  int MinTopBlobs() const override { return 1; }

 protected:
  void Forward_cpu(const Blobs& bottom, const Blobs& top) override;
  void Backward_cpu(const Blobs& /*top*/, const std::vector<bool>& /*down*/,
                    const Blobs& /*bottom*/) override {}
#ifndef CPU_ONLY
  // In socket_data_layer.cu: straight into the device's memory.
  void Forward_gpu(const Blobs& bottom, const Blobs& top) override;
  void Backward_gpu(const Blobs& /*top*/, const std::vector<bool>& /*down*/,
                    const Blobs& /*bottom*/) override {}
#endif

 private:
  std::vector<FeedShape> ShapesOf(const Blobs& top) const;
  void CheckTransform() const;
  const FeedBatch& NextBatch();
  [[noreturn]] void End(const std::string& reason) const;

  std::string from_;  // The feeder's address.
  std::unique_ptr<FeedPrefetch> feed_;
  uint64_t epochs_ = 0;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_SOCKET_DATA_LAYER_H_
