// The loops over whole vectors, one table of them per instruction set.
//
// Everything that touches every entry is here; everything that touches only
// the kept ones is scalar code elsewhere. All tables give the same bits: the
// scalar one is the reference, and what tests compare the others with.
//
// A `floor` is the bits of a magnitude: entries whose magnitude bits are at
// least that are collected, in ascending order. Output arrays need kVectorSlack
// elements of scrap room past the last one collected.
#ifndef TENSORLIGHTNING_KERNELS_CPU_VECTOR_OPS_H_
#define TENSORLIGHTNING_KERNELS_CPU_VECTOR_OPS_H_

#include <cstddef>
#include <cstdint>

namespace tensorlightning::cpu {

inline constexpr size_t kVectorSlack = 16;

struct Isolated {
  uint32_t floor;
  uint32_t reaching;  // How many reach the floor.
};

// `collect_*` within a chunk write 16-bit positions offset by `base`.
struct VectorOps {
  const char* name;

  // Whether every magnitude is below that of `limit` (bits; NaN is above all).
  bool (*all_below)(const float* values, size_t n, uint32_t limit);

  // x -= pull * (x - c), r += push * (x - c); collects from the new r. With
  // pull == 1, x is left alone: it becomes the view once that is corrected.
  uint32_t (*pull_and_book)(float* x, const float* c, float* r, uint32_t n,
                            float pull, float push, uint32_t floor,
                            uint16_t base, uint16_t* positions);

  // out = a - b; collects from out.
  uint32_t (*subtract)(const float* a, const float* b, float* out, uint32_t n,
                       uint32_t floor, uint16_t base, uint16_t* positions);

  // r += g; collects from the new r.
  uint32_t (*accumulate)(float* r, const float* g, uint32_t n, uint32_t floor,
                         uint16_t base, uint16_t* positions);

  uint32_t (*collect)(const float* values, uint32_t n, uint32_t floor,
                      uint16_t base, uint16_t* positions);

  // A floor that exactly k of a few magnitudes reach or, where the k-th largest
  // is among several equal ones, that value. To begin with, at least k must
  // reach `low` and fewer than k reach `high`.
  Isolated (*isolate)(const uint32_t* magnitudes, uint32_t n, uint32_t k,
                      uint32_t low, uint32_t high);

  // 32-bit indices, offset by `base`, and magnitude bits, of long arrays.
  size_t (*collect_wide)(const float* values, size_t n, uint32_t floor,
                         uint32_t base, uint32_t* indices,
                         uint32_t* magnitudes);

  // r += g; moves what reaches the floor out of r, into indices and values.
  size_t (*prune)(float* r, const float* g, size_t n, uint32_t floor,
                  uint32_t base, uint32_t* indices, float* values);
};

enum class InstructionSet { kScalar, kAvx2, kAvx512 };

// nullptr when this machine can't run it.
const VectorOps* OpsFor(InstructionSet set);

// The best this machine has, or what TL_INSTRUCTION_SET (scalar, avx2, avx512)
// names if it has that; chosen once.
const VectorOps& Ops();

// Replaces the choice, for tests and benchmarks; returns the one before.
const VectorOps& UseOps(const VectorOps& ops);

}  // namespace tensorlightning::cpu

#endif  // TENSORLIGHTNING_KERNELS_CPU_VECTOR_OPS_H_
