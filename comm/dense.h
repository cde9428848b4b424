// How dense shards (biases, norms) travel, at both ends.
#ifndef TENSORLIGHTNING_COMM_DENSE_H_
#define TENSORLIGHTNING_COMM_DENSE_H_

#include "kernels/exchange.h"

namespace tensorlightning {

// All entries, and each with an exponent of its own: they are few, they matter,
// and variances beside biases must not share a scale (a small one would be
// rounded to something else, or below zero).
inline Compression DenseCompression(ValueCode values) {
  const bool exact = values == ValueCode::kFloat32;
  return {SelectionRule::ChunkTopK(1.0),
          exact ? ValueCode::kFloat32 : ValueCode::kBfloat16};
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_DENSE_H_
