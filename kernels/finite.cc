#include "kernels/finite.h"

#include <string>

#include "kernels/cpu/vector_ops.h"

namespace tensorlightning {

Error NotFiniteError(std::string_view what, size_t count, size_t first,
                     uint32_t limit) {
  const bool one = count == 1;
  return {ErrorCode::kNotFinite,
          std::to_string(count) + (one ? " value of " : " values of ") +
              std::string(what) + (one ? " is" : " are") +
              (limit == kInfinityBits ? " NaN or Inf" : " NaN, Inf or huge") +
              (one ? ", at entry " : ", the first at entry ") +
              std::to_string(first)};
}

Status CheckFinite(std::span<const float> values, std::string_view what,
                   uint32_t limit) {
  if (cpu::Ops().all_below(values.data(), values.size(), limit)) return Done{};
  size_t count = 0;
  size_t first = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (MagnitudeBits(values[i]) < limit) continue;
    if (count++ == 0) first = i;
  }
  return NotFiniteError(what, count, first, limit);
}

}  // namespace tensorlightning
