// A layer of stock Caffe is never told which net it is in. While the plugin is
// loaded, libcaffe's Net<float>::Init is hidden by one that remembers.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_NET_IN_MAKING_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_NET_IN_MAKING_H_

#include <caffe/net.hpp>

namespace tensorlightning {

struct NetInMaking {
  // Null where Caffe was loaded before the plugin, and does not see its Init.
  const caffe::Net<float>* net = nullptr;
  const caffe::NetParameter* param = nullptr;
};

// Of this thread; asked in a layer's LayerSetUp().
NetInMaking CurrentNetInMaking();

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_NET_IN_MAKING_H_
