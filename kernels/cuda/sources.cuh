// Where the values of a step come from, and what sending one changes: the
// device's counterparts of the sources in kernels/exchange.cc.
//
//   Prepare(i)   brings entry i up to date and returns it
//   Value(i)     the entry once prepared
//   Peek(i)      the entry as Prepare() will make it
//   Sent(i, q)   books that q of entry i is on its way
//   Finish(i)    after the last Sent() of the entry's chunk
#ifndef TENSORLIGHTNING_KERNELS_CUDA_SOURCES_CUH_
#define TENSORLIGHTNING_KERNELS_CUDA_SOURCES_CUH_

#include <cuda_runtime.h>

#include <cstddef>

namespace tensorlightning::cuda {

struct WorkerSource {
  float* x;
  float* c;
  float* r;
  float push;
  float pull;

  __device__ float Prepare(size_t i) {
    const float d = x[i] - c[i];
    if (pull != 1.0f) x[i] -= pull * d;
    return r[i] += push * d;
  }
  __device__ float Value(size_t i) const { return r[i]; }
  __device__ float Peek(size_t i) const { return r[i] + push * (x[i] - c[i]); }
  __device__ void Sent(size_t i, float q) {
    r[i] -= q;
    c[i] += q;
  }
  __device__ void Finish(size_t i) {
    if (pull == 1.0f) x[i] = c[i];
  }
};

struct ReplySource {
  const float* centre;
  float* view;
  float* dense;  // Room for all differences, or null: they aren't kept.

  __device__ float Prepare(size_t i) {
    const float difference = centre[i] - view[i];
    if (dense != nullptr) dense[i] = difference;
    return difference;
  }
  __device__ float Value(size_t i) const { return dense[i]; }
  __device__ float Peek(size_t i) const { return centre[i] - view[i]; }
  __device__ void Sent(size_t i, float q) { view[i] += q; }
  __device__ void Finish(size_t) {}
};

struct ResidualSource {
  float* r;
  const float* g;  // May be null.

  __device__ float Prepare(size_t i) {
    if (g != nullptr) r[i] += g[i];
    return r[i];
  }
  __device__ float Value(size_t i) const { return r[i]; }
  __device__ float Peek(size_t i) const {
    return g == nullptr ? r[i] : r[i] + g[i];
  }
  __device__ void Sent(size_t i, float q) { r[i] -= q; }
  __device__ void Finish(size_t) {}
};

// Values that stay as they are: selection alone.
struct ReadOnlySource {
  const float* values;

  __device__ float Prepare(size_t i) { return values[i]; }
  __device__ float Value(size_t i) const { return values[i]; }
  __device__ float Peek(size_t i) const { return values[i]; }
  __device__ void Sent(size_t, float) {}
  __device__ void Finish(size_t) {}
};

}  // namespace tensorlightning::cuda

#endif  // TENSORLIGHTNING_KERNELS_CUDA_SOURCES_CUH_
