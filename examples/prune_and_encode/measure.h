// What one way to compress costs: bytes, time, and what is left behind.
#ifndef TENSORLIGHTNING_EXAMPLES_PRUNE_AND_ENCODE_MEASURE_H_
#define TENSORLIGHTNING_EXAMPLES_PRUNE_AND_ENCODE_MEASURE_H_

#include <cstddef>
#include <span>

#include "kernels/quantise.h"
#include "kernels/result.h"

namespace tensorlightning::examples {

struct Cost {
  size_t kept;
  size_t bytes;
  double seconds;       // Of Compress().
  double roof_seconds;  // Of r += g, which any residual costs.
  double roof_share;    // Median of roof by ours, measured in turns.
  // Bits per kept entry, besides those of its value.
  double scale_bits;
  double index_bits;
  double entropy_bits;  // What the index would need, were positions random.
  double error;         // |residual| / |gradient|: the share not sent yet.
};

// Compresses the gradient with chunk-wise top-k into an empty residual. An
// error if it holds NaN or Inf, or if what was sent and what stayed don't add
// up to it to the bit.
Result<Cost> Measure(std::span<const float> gradient, double density,
                     ValueCode code);

}  // namespace tensorlightning::examples

#endif  // TENSORLIGHTNING_EXAMPLES_PRUNE_AND_ENCODE_MEASURE_H_
