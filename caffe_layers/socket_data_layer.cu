// SocketData on a GPU. Compiled by nvcc, never run by us: no machine of ours
// has one, and Debian's Caffe is for CPUs.
#include <caffe/util/math_functions.hpp>

#include "caffe_layers/socket_data_layer.h"

namespace tensorlightning {

void SocketDataLayer::Forward_gpu(const Blobs& /*bottom*/, const Blobs& top) {
  const FeedBatch& batch = NextBatch();
  for (size_t i = 0; i < top.size(); ++i) {
    caffe::caffe_gpu_memcpy(batch.tops[i].size() * sizeof(float),
                            batch.tops[i].data(), top[i]->mutable_gpu_data());
  }
  // On the device, where the data is.
  top[0]->scale_data(layer_param_.transform_param().scale());
}

}  // namespace tensorlightning
