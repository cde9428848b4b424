// ElasticExchange on a GPU. Compiled by nvcc, never run by us: no machine of
// ours has one, and Debian's Caffe is for CPUs.
#include "caffe_layers/elastic_exchange_layer.h"

namespace tensorlightning {

// comm/ exchanges from the host's memory. Caffe's blobs copy themselves there,
// into pinned pages, when they are asked for cpu_data, and back to the device
// when the next layer asks for gpu_data.
void ElasticExchangeLayer::Forward_gpu(const Blobs& /*bottom*/,
                                       const Blobs& /*top*/) {
  Pass();
}

}  // namespace tensorlightning
