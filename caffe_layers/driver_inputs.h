// What a net is fed through: its MemoryData layers. Checks what Caffe either
// checks fatally or, as the range of labels, not at all.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_DRIVER_INPUTS_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_DRIVER_INPUTS_H_

#include <caffe/layers/memory_data_layer.hpp>
#include <caffe/net.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/result.h"

namespace tensorlightning {

struct NetInput {
  std::string layer;
  caffe::MemoryDataLayer<float>* memory;
  // A layer that uses labels as the number of a class.
  struct Use {
    int classes = 0;             // Labels must be below.
    std::optional<int> ignored;  // But for this one, which stands for none.
  };
  std::vector<Use> uses;
  bool fed = false;

  int64_t example_entries() const {
    return int64_t{1} * memory->channels() * memory->height() * memory->width();
  }
};

class NetInputs {
 public:
  // The net must outlive it.
  explicit NetInputs(const caffe::Net<float>& net);

  const std::vector<NetInput>& all() const { return inputs_; }
  // `layer` may be "" if there is one.
  Status Feed(const std::string& layer, const float* data, const float* labels,
              int64_t count);
  Status AllFed() const;

 private:
  Result<NetInput*> Find(const std::string& layer);
  std::string Names() const;

  std::vector<NetInput> inputs_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_DRIVER_INPUTS_H_
