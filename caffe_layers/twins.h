// The names under which solvers that exchange are registered with Caffe, and
// what they can do besides.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_TWINS_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_TWINS_H_

#include <string>

namespace tensorlightning {

// Of "SGD": "TensorLightningSGD".
inline std::string TwinOf(const std::string& type) {
  return "TensorLightning" + type;
}

bool HasTwin(const std::string& type);

// What a twin is besides a solver.
class Exchanging {
 public:
  virtual ~Exchanging() = default;
  // Instead of with the first step.
  virtual void Join() = 0;
  // As JSON; of the last exchange when it has finished.
  virtual std::string Statistics() const = 0;
  // As after the last of max_iter's updates: the net then holds what all have
  // learned, and further steps are this worker's alone.
  virtual void Finish() = 0;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_TWINS_H_
