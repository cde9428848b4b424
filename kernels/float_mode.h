// The floating-point mode that our bits depend on, for the length of a scope.
//
// Frameworks flush denormals in their threads (TensorFlow does); two machines
// that treat denormals differently would end with different views of the same
// centre. Every public function of kernels/ that does float arithmetic holds
// one of these: round to nearest, denormals kept, no traps.
#ifndef TENSORLIGHTNING_KERNELS_FLOAT_MODE_H_
#define TENSORLIGHTNING_KERNELS_FLOAT_MODE_H_

#include <immintrin.h>

namespace tensorlightning {

class ScopedFloatMode {
 public:
  ScopedFloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(kDefaultMode); }
  ~ScopedFloatMode() { _mm_setcsr(saved_); }
  ScopedFloatMode(const ScopedFloatMode&) = delete;
  ScopedFloatMode& operator=(const ScopedFloatMode&) = delete;

 private:
  static constexpr unsigned kDefaultMode = 0x1f80;  // All exceptions masked.
  unsigned saved_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_FLOAT_MODE_H_
