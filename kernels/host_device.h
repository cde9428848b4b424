// Marks functions that CUDA kernels call too. Where a function can be constexpr
// it needs no mark (nvcc runs with --expt-relaxed-constexpr).
#ifndef TENSORLIGHTNING_KERNELS_HOST_DEVICE_H_
#define TENSORLIGHTNING_KERNELS_HOST_DEVICE_H_

#ifdef __CUDACC__
#define TL_HOST_DEVICE __host__ __device__
#else
#define TL_HOST_DEVICE
#endif

#endif  // TENSORLIGHTNING_KERNELS_HOST_DEVICE_H_
