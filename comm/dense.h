// How dense shards (biases, norms) travel, at both ends.
#ifndef TENSORLIGHTNING_COMM_DENSE_H_
#define TENSORLIGHTNING_COMM_DENSE_H_

#include "kernels/exchange.h"

namespace tensorlightning {

// All entries, and no fewer than 8 bits of each: they are few, and matter.
inline Compression DenseCompression(ValueCode values) {
  const bool coarse =
      values == ValueCode::kBits4 || values == ValueCode::kBits2;
  return {SelectionRule::ChunkTopK(1.0), coarse ? ValueCode::kBits8 : values};
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_DENSE_H_
