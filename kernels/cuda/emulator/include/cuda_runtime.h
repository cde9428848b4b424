// Stands for NVIDIA's header of the same name when a .cu file is compiled as
// C++: g++ -x c++ -std=c++20 -I kernels/cuda/emulator/include. Kernels need no
// change; they are launched through kernels/cuda/launch.h, not <<<>>>.
#ifndef KERNELS_CUDA_EMULATOR_INCLUDE_CUDA_RUNTIME_H_
#define KERNELS_CUDA_EMULATOR_INCLUDE_CUDA_RUNTIME_H_

// The names and types are CUDA's.
// NOLINTBEGIN(bugprone-reserved-identifier)

#ifdef __CUDACC__
#error "nvcc must find NVIDIA's cuda_runtime.h, not the emulator's"
#endif

#define TL_CUDA_EMULATOR 1

#include <math.h>  // NOLINT(modernize-deprecated-headers): global names

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __restrict__ __restrict
// A block runs on one worker thread, and one at a time.
#define __shared__ static thread_local

#include "kernels/cuda/emulator/atomics.h"
#include "kernels/cuda/emulator/collectives.h"
#include "kernels/cuda/emulator/host_api.h"
#include "kernels/cuda/emulator/intrinsics.h"
#include "kernels/cuda/emulator/runtime.h"
#include "kernels/cuda/emulator/vector_types.h"

// NOLINTEND(bugprone-reserved-identifier)

#endif  // KERNELS_CUDA_EMULATOR_INCLUDE_CUDA_RUNTIME_H_
