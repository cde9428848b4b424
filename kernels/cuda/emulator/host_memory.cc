// Device memory of the emulated CUDA runtime: allocation, copies, fills.
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "kernels/cuda/emulator/emulator.h"
#include "kernels/cuda/emulator/host_api.h"
#include "kernels/cuda/emulator/random.h"
#include "kernels/cuda/emulator/sanitizers.h"

namespace tensorlightning::cuda::emulator {
namespace {

class DeviceMemory {
 public:
  cudaError_t Allocate(void** pointer, size_t bytes) {
    const Options options = CurrentOptions();
    if (options.devices < 1) return cudaErrorNoDevice;
    if (pointer == nullptr) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    const std::lock_guard lock(mutex_);
    if (bytes > options.memory_bytes || used_ > options.memory_bytes - bytes) {
      return cudaErrorMemoryAllocation;
    }
    // cudaMalloc promises 256-byte alignment. posix_memalign keeps the exact
    // size, so that ASan's red zone begins right after it.
    void* block = nullptr;
    if (posix_memalign(&block, 256, bytes) != 0) {
      return cudaErrorMemoryAllocation;
    }
    Random(options.seed + ++allocations_).Fill(block, bytes);
    blocks_[static_cast<const char*>(block)] = bytes;
    used_ += bytes;
    *pointer = block;
    return cudaSuccess;
  }

  cudaError_t Free(void* pointer) {
    if (pointer == nullptr) return cudaSuccess;
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<const char*>(pointer));
    if (found == blocks_.end()) return cudaErrorInvalidValue;
    used_ -= found->second;
    blocks_.erase(found);
    std::free(pointer);
    return cudaSuccess;
  }

  enum class Place { kHost, kDevice, kAcross };
  Place Find(const void* pointer, size_t bytes) {
    const char* begin = static_cast<const char*>(pointer);
    const std::lock_guard lock(mutex_);
    auto next = blocks_.upper_bound(begin);
    if (next != blocks_.end() && next->first < begin + bytes) {
      return Place::kAcross;
    }
    if (next == blocks_.begin()) return Place::kHost;
    const auto& [first, size] = *--next;
    if (begin >= first + size) return Place::kHost;
    return begin + bytes <= first + size ? Place::kDevice : Place::kAcross;
  }

  size_t used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }

 private:
  std::mutex mutex_;
  std::map<const char*, size_t> blocks_;
  size_t used_ = 0;
  uint64_t allocations_ = 0;
};

bool OnSide(const void* pointer, size_t bytes, bool device) {
  const auto place = Only<DeviceMemory>().Find(pointer, bytes);
  return place ==
         (device ? DeviceMemory::Place::kDevice : DeviceMemory::Place::kHost);
}

cudaError_t Copy(void* to, const void* from, size_t bytes,
                 cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  if (kind == cudaMemcpyDefault) {
    if (Only<DeviceMemory>().Find(to, bytes) == DeviceMemory::Place::kAcross ||
        Only<DeviceMemory>().Find(from, bytes) ==
            DeviceMemory::Place::kAcross) {
      return cudaErrorInvalidValue;
    }
  } else {
    const bool to_device =
        kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device =
        kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (!OnSide(to, bytes, to_device) || !OnSide(from, bytes, from_device)) {
      return cudaErrorInvalidValue;
    }
  }
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t Fill(void* to, int value, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || !OnSide(to, bytes, /*device=*/true)) {
    return cudaErrorInvalidValue;
  }
  std::memset(to, value, bytes);
  return cudaSuccess;
}

}  // namespace
}  // namespace tensorlightning::cuda::emulator

using tensorlightning::cuda::emulator::Copy;
using tensorlightning::cuda::emulator::CurrentOptions;
using tensorlightning::cuda::emulator::DeviceMemory;
using tensorlightning::cuda::emulator::Fill;
using tensorlightning::cuda::emulator::Only;
using tensorlightning::cuda::emulator::internal::Remember;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return Remember(Only<DeviceMemory>().Allocate(pointer, bytes));
}

cudaError_t cudaFree(void* pointer) {
  return Remember(Only<DeviceMemory>().Free(pointer));
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  return cudaMalloc(pointer, bytes);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) {
  return cudaFree(pointer);
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  if (CurrentOptions().devices < 1) return Remember(cudaErrorNoDevice);
  *pointer = std::malloc(bytes);
  return Remember(*pointer == nullptr ? cudaErrorMemoryAllocation
                                      : cudaSuccess);
}

cudaError_t cudaFreeHost(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind kind) {
  return Remember(Copy(to, from, bytes, kind));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t) {
  return Remember(Copy(to, from, bytes, kind));
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return Remember(Fill(to, value, bytes));
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  return Remember(Fill(to, value, bytes));
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = CurrentOptions().memory_bytes;
  *free_bytes = *total_bytes - Only<DeviceMemory>().used();
  return cudaSuccess;
}
