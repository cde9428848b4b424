// Variables of TensorFlow as float32 in host memory.
//
//   Variables variables;
//   OP_REQUIRES_OK(ctx, Variables::Find(ctx, 1, &variables));
//   variables.InPlace([&](Tensors tensors) { ... });   // quick work, locked
//
//   HostCopy copy;                                     // work that waits
//   variables.Read(copy);  ... Tensors of copy ...;  variables.Write(copy);
//
// float32 on the CPU is worked on where it is (or on a copy of it, if somebody
// holds the old tensor); float16, bfloat16, float64 and variables on a GPU go
// through a copy, and only entries that have changed are written back.
#ifndef TENSORLIGHTNING_TF_OPS_VARIABLES_H_
#define TENSORLIGHTNING_TF_OPS_VARIABLES_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/client/schedule.h"
#include "comm/layout.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_var.h"

namespace tensorlightning {

// Float32 copies of several tensors.
class HostCopy {
 public:
  std::vector<std::vector<float>> values;

  // Valid until `values` changes.
  Tensors tensors();

 private:
  std::vector<std::span<float>> spans_;
};

// The tensors of an op's inputs, or variables' values, converted; from a GPU if
// that is where the op runs.
absl::Status ToHost(tensorflow::OpKernelContext* ctx,
                    const tensorflow::Tensor& tensor, std::vector<float>& host);
// `tensor` has its type and shape already.
absl::Status FromHost(tensorflow::OpKernelContext* ctx,
                      std::span<const float> host, tensorflow::Tensor& tensor);

class Variables {
 public:
  // Those of the op's resource inputs from `first` on, to the last input. An
  // error for what is no variable, is not initialised, or has no float type.
  static absl::Status Find(tensorflow::OpKernelContext* ctx, int first,
                           Variables* found);

  // Names in the order of the variables.
  Result<Layout> MakeLayout(const std::vector<std::string>& names) const;

  absl::Status Read(HostCopy& copy) const;
  absl::Status Write(const HostCopy& copy);

  absl::Status InPlace(const std::function<absl::Status(Tensors)>& work);

 private:
  // Of all variables, in one order for everybody.
  class Locks;

  bool IsDirect(const tensorflow::Tensor& tensor) const;

  tensorflow::OpKernelContext* ctx_ = nullptr;
  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_TF_OPS_VARIABLES_H_
