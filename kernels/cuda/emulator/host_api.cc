// Errors, devices and streams of the emulated CUDA runtime.
#include "kernels/cuda/emulator/host_api.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/emulator/emulator.h"

// Streams are told apart, and used after destruction shows under ASan.
struct CUstream_st {
  unsigned flags;
};

namespace {

using tensorlightning::cuda::emulator::CurrentOptions;
using tensorlightning::cuda::emulator::internal::Remember;

constinit thread_local cudaError_t last_error = cudaSuccess;

// The oldest architecture that the kernels are compiled for.
constexpr int kMajor = 7;
constexpr int kMinor = 5;

cudaError_t CheckDevice(int device) {
  const int devices = CurrentOptions().devices;
  if (devices < 1) return cudaErrorNoDevice;
  return device < 0 || device >= devices ? cudaErrorInvalidDevice : cudaSuccess;
}

int Multiprocessors() { return std::max(CurrentOptions().workers, 1); }

}  // namespace

cudaError_t tensorlightning::cuda::emulator::internal::Remember(
    cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  const int devices = CurrentOptions().devices;
  // Like CUDA without a driver, leaves the count alone on failure.
  if (devices < 1) return Remember(cudaErrorNoDevice);
  *count = devices;
  return cudaSuccess;
}

namespace {
constinit thread_local int current_device = 0;
}  // namespace

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return Remember(CheckDevice(current_device));
}

cudaError_t cudaSetDevice(int device) {
  const cudaError_t error = CheckDevice(device);
  if (error == cudaSuccess) current_device = device;
  return Remember(error);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                   int device) {
  const cudaError_t error = CheckDevice(device);
  if (error != cudaSuccess) return Remember(error);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = 32;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = Multiprocessors();
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = kMajor;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = kMinor;
      return cudaSuccess;
  }
  return Remember(cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const cudaError_t error = CheckDevice(device);
  if (error != cudaSuccess) return Remember(error);
  *properties = {};
  std::strcpy(properties->name, "CUDA emulator");
  properties->totalGlobalMem = CurrentOptions().memory_bytes;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->major = kMajor;
  properties->minor = kMinor;
  properties->multiProcessorCount = Multiprocessors();
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return Remember(CheckDevice(0)); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const cudaError_t error = CheckDevice(0);
  if (error != cudaSuccess) return Remember(error);
  *stream = new CUstream_st{flags};
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return Remember(cudaErrorInvalidResourceHandle);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
