// Device memory with an owner. Grows, never shrinks; contents don't survive
// growing.
#ifndef TENSORLIGHTNING_KERNELS_CUDA_BUFFER_H_
#define TENSORLIGHTNING_KERNELS_CUDA_BUFFER_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/result.h"

namespace tensorlightning::cuda {

// Done, or an error that names `what` and CUDA's reason.
inline Status ToStatus(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return Done{};
  return Error{ErrorCode::kUnavailable,
               std::string(what) + ": " + cudaGetErrorString(code)};
}

template <typename T>
class DeviceBuffer {
 public:
  T* get() const { return memory_.get(); }
  size_t size() const { return size_; }

  Status Reserve(size_t size) {
    if (size <= size_) return Done{};
    memory_.reset();
    size_ = 0;
    void* memory = nullptr;
    Status status =
        ToStatus(cudaMalloc(&memory, size * sizeof(T)), "device memory");
    if (!status.ok()) return status;
    memory_.reset(static_cast<T*>(memory));
    size_ = size;
    return status;
  }

 private:
  struct Free {
    void operator()(T* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<T, Free> memory_;
  size_t size_ = 0;
};

}  // namespace tensorlightning::cuda

#endif  // TENSORLIGHTNING_KERNELS_CUDA_BUFFER_H_
