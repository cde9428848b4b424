// Shared memory that the emulator can check. On the device it is an array and
// nothing else; in the emulator an index out of bounds is an error, the
// contents are garbage at the beginning of each block, and ASan reports
// pointers that run over either end.
//
//   __shared__ SharedArray<unsigned, 256> bins;
//   __shared__ SharedValue<unsigned> total;
//   bins[threadIdx.x] = 0;
//   if (threadIdx.x == 0) *total = 0;
//   atomicAdd(&bins[key], 1u);
//
// A plain `__shared__ unsigned bins[256]` works too, without these checks.
#ifndef KERNELS_CUDA_SHARED_ARRAY_H_
#define KERNELS_CUDA_SHARED_ARRAY_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tensorlightning::cuda {

#ifdef TL_CUDA_EMULATOR

template <class T, size_t N>
class SharedArray {
  static_assert(std::is_trivially_default_constructible_v<T>,
                "shared memory has no constructors");

 public:
  T& operator[](size_t i) {
    T* const begin = data();
    if (i >= N) {
      emulator::internal::SharedOutOfBounds(i, N, __PRETTY_FUNCTION__);
    }
    return begin[i];
  }

  // The first access in a block makes garbage of what an earlier one left. TSan
  // must not see this book-keeping, which is no thread's own.
  [[gnu::no_sanitize("thread")]] T* data() {
    if (block_ != emulator::internal::block_serial) {
      block_ = emulator::internal::block_serial;
      emulator::internal::ForbidAccess(before_, sizeof(before_));
      emulator::internal::ForbidAccess(after_, sizeof(after_));
      emulator::internal::PoisonShared(data_, sizeof(data_));
    }
    return data_;
  }

  static constexpr size_t size() { return N; }

 private:
  static constexpr size_t kRedZoneBytes = 64;

  uint64_t block_ = 0;
  alignas(16) char before_[kRedZoneBytes] = {};
  alignas(16) T data_[N] = {};
  char after_[kRedZoneBytes] = {};
};

#else

template <class T, size_t N>
class SharedArray {
 public:
  __device__ __forceinline__ T& operator[](size_t i) { return data_[i]; }
  __device__ __forceinline__ T* data() { return data_; }
  static constexpr __host__ __device__ size_t size() { return N; }

 private:
  // Wide enough for vector loads, as in the emulator.
  alignas(16) T data_[N];
};

#endif

template <class T>
class SharedValue {
 public:
  __device__ __forceinline__ T& operator*() { return value_[0]; }
  __device__ __forceinline__ T* operator->() { return &value_[0]; }

 private:
  SharedArray<T, 1> value_;
};

}  // namespace tensorlightning::cuda

#endif  // KERNELS_CUDA_SHARED_ARRAY_H_
