// The pure ops on a GPU: the same kernels, with memory and arithmetic of
// kernels/cuda. Compiled by the C++ compiler; what nvcc has to see is in
// kernels/cuda alone. Loads, and does nothing, where there is no GPU.
//
// Compiled and linked here, never run on a GPU.
#include <cuda_runtime.h>

#include "tf_ops/gpu_device.h"
#include "tf_ops/sparse_kernels.h"
#include "xla/stream_executor/stream.h"

namespace tensorlightning {
namespace {

namespace tf = tensorflow;

class Gpu : public GpuDevice {
 public:
  Gpu(tf::OpKernelContext* ctx, State& state)
      : GpuDevice(static_cast<cudaStream_t>(ctx->op_device_context()
                                                ->stream()
                                                ->platform_specific_handle()
                                                .stream),
                  state) {}
};

REGISTER_KERNEL_BUILDER(
    Name("TlPrune").Device(tf::DEVICE_GPU).HostMemory("density"), PruneOp<Gpu>);
REGISTER_KERNEL_BUILDER(
    Name("TlPruneGradient").Device(tf::DEVICE_GPU).HostMemory("density"),
    PruneGradientOp<Gpu>);
REGISTER_KERNEL_BUILDER(Name("TlSparseEncode")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("density")
                            .HostMemory("code"),
                        SparseEncodeOp<Gpu>);
REGISTER_KERNEL_BUILDER(Name("TlSparseDecode")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("code")
                            .HostMemory("shape"),
                        SparseDecodeOp<Gpu>);

}  // namespace
}  // namespace tensorlightning
