// How a flat float32 vector is cut up.
//
//   entries   |................|................|.......  4,096 to a chunk
//   chunks    |c0|c1|...|c15|c16|...|c31|c32|...|         16 to a group
//   groups    |      g0     |      g1      |  g2 (short)
//
// A chunk is the unit of selection (top-k) and of scale (quantisation). A
// group is the unit of the code: a position inside one fits in 16 bits, and a
// group's bytes can be decoded without the others'. The last chunk and the
// last group may be short.
#ifndef TENSORLIGHTNING_KERNELS_CHUNK_H_
#define TENSORLIGHTNING_KERNELS_CHUNK_H_

#include <cstddef>
#include <cstdint>

namespace tensorlightning {

inline constexpr uint32_t kChunkEntries = 4096;
inline constexpr uint32_t kChunkShift = 12;
inline constexpr uint32_t kGroupChunks = 16;
inline constexpr uint32_t kGroupEntries = kChunkEntries * kGroupChunks;

// Counts and indices travel as 32-bit numbers.
inline constexpr size_t kMaxEntries = size_t{1} << 31;

constexpr size_t ChunkCount(size_t entries) {
  return (entries + kChunkEntries - 1) / kChunkEntries;
}
constexpr size_t GroupCount(size_t entries) {
  return (entries + kGroupEntries - 1) / kGroupEntries;
}

// Entries of group (or chunk) `index` of a vector: all but the last are full.
constexpr uint32_t SpanOf(size_t entries, size_t index, uint32_t full) {
  const size_t left = entries - index * full;
  return left < full ? static_cast<uint32_t>(left) : full;
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_CHUNK_H_
