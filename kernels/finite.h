// Refusing NaN and Inf, before anything is written.
#ifndef TENSORLIGHTNING_KERNELS_FINITE_H_
#define TENSORLIGHTNING_KERNELS_FINITE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/quantise.h"
#include "kernels/result.h"

namespace tensorlightning {

// Bits of 2^100. Numbers below it can be added up for ever without reaching
// Inf: long before, a sum is so large that adding one no longer changes it. A
// model that has come this far has diverged anyway.
inline constexpr uint32_t kUsableBits = 0x71800000u;

// "3 values of the push are NaN or Inf, the first at entry 17". With the limit
// kUsableBits it says so instead of Inf.
Error NotFiniteError(std::string_view what, size_t count, size_t first,
                     uint32_t limit = kInfinityBits);

// An error if `values`, called `what` in its message, holds a NaN, an Inf or a
// magnitude from `limit` (bits) on.
Status CheckFinite(std::span<const float> values, std::string_view what,
                   uint32_t limit = kInfinityBits);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_FINITE_H_
