// Launches a kernel on a stream: the one way to do it in this repository, since
// g++ cannot read <<<>>>. nvcc gets cudaLaunchKernelEx; g++ gets the emulator,
// which runs the kernel on the CPU (kernels/cuda/emulator/README.md).
//
//   cudaError_t e = Launch(ScaleKernel, {blocks}, {256}, stream, n, x, 0.5f);
//
// Arguments are converted to the kernel's parameter types. The result says
// whether the launch was accepted; no dynamic shared memory.
#ifndef KERNELS_CUDA_LAUNCH_H_
#define KERNELS_CUDA_LAUNCH_H_

#include <cuda_runtime.h>

#include <utility>

#ifdef TL_CUDA_EMULATOR
#include "kernels/cuda/emulator/emulator.h"
#endif

namespace tensorlightning::cuda {

#ifdef TL_CUDA_EMULATOR

template <class... P, class... A>
cudaError_t Launch(void (*kernel)(P...), emulator::Grid grid, dim3 block,
                   cudaStream_t /*stream*/, A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "wrong number of arguments");
  return emulator::Run(kernel, grid, block, std::forward<A>(args)...);
}

#else

template <class... P, class... A>
cudaError_t Launch(void (*kernel)(P...), dim3 grid, dim3 block,
                   cudaStream_t stream, A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "wrong number of arguments");
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...);
}

#endif

}  // namespace tensorlightning::cuda

#endif  // KERNELS_CUDA_LAUNCH_H_
