#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

REGISTER_OP("TlPrune")
    .Input("values: float32")
    .Output("pruned: float32")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

class PruneOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    context->set_output(0, context->input(0));
  }
};
REGISTER_KERNEL_BUILDER(Name("TlPrune").Device(tensorflow::DEVICE_CPU),
                        PruneOp);
