// A net's learnable blobs as comm/ sees a model: names, shapes, spans of
// floats.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_NET_BLOBS_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_NET_BLOBS_H_

#include <caffe/net.hpp>
#include <span>
#include <vector>

#include "comm/layout.h"
#include "kernels/result.h"

namespace tensorlightning {

// Blobs that layers share, by name, are there once: under their owner's name,
// "layer/0".
Result<Layout> LayoutOf(const caffe::Net<float>& net);

// In the layout's order; of a net on a GPU these are copied to the host first,
// and back when the net uses them next.
std::vector<std::span<float>> WeightsOf(const caffe::Net<float>& net);
std::vector<std::span<float>> GradientsOf(const caffe::Net<float>& net);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_NET_BLOBS_H_
