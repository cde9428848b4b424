// Which entries of a vector to keep: those of the largest magnitude.
//
// One rule, four kinds:
//   ChunkTopK(density)         the top share of every chunk of 4,096
//   GlobalTopK(density)        the top share of the whole vector
//   Threshold(t)               all with |v| >= t
//   SampledThreshold(density)  a threshold estimated from 65,536 samples: the
//                              density is missed by about 1 / sqrt(samples *
//                              density), 4% at a density of 1%, 12% at 0.1%
// The top-k kinds keep exactly ceil(density * n) entries; among equal
// magnitudes the lower index wins. Results depend on nothing but the values
// and the rule: not on threads, instruction set or history.
#ifndef TENSORLIGHTNING_KERNELS_SELECT_H_
#define TENSORLIGHTNING_KERNELS_SELECT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/result.h"
#include "kernels/workspace.h"

namespace tensorlightning {

struct SelectionRule {
  enum class Kind : uint8_t {
    kChunkTopK,
    kGlobalTopK,
    kThreshold,
    kSampledThreshold,
  };

  Kind kind;
  double amount;  // The density, in (0, 1], or the threshold, from 0 on.
  uint64_t seed = 0;

  static SelectionRule ChunkTopK(double density) {
    return {Kind::kChunkTopK, density};
  }
  static SelectionRule GlobalTopK(double density) {
    return {Kind::kGlobalTopK, density};
  }
  static SelectionRule Threshold(double threshold) {
    return {Kind::kThreshold, threshold};
  }
  static SelectionRule SampledThreshold(double density, uint64_t seed = 0) {
    return {Kind::kSampledThreshold, density, seed};
  }

  // An error unless `amount` is in range.
  Status Check() const;
  // The most entries that the rule may keep of n.
  size_t MaxKept(size_t n) const;
};

// ceil(density * n), at least 1 of any.
size_t KeptOf(double density, size_t n);

// The bits of the smallest float that is not below `threshold`.
uint32_t ThresholdFloor(double threshold);

// The indices that the rule keeps, ascending; valid until the workspace is used
// again. NaN or Inf in `values` is an error.
Result<std::span<const uint32_t>> Select(std::span<const float> values,
                                         const SelectionRule& rule,
                                         Workspace& workspace);

// ---- The parts, for exchange.cc. -------------------------------------------

// Everything above `magnitude` (bits) is kept, and the first `ties` entries
// that equal it.
struct Cut {
  uint32_t magnitude;
  uint64_t ties;
};

// The exact cut that keeps k of `values`, 0 < k <= n.
Cut FindGlobalCut(std::span<const float> values, size_t k,
                  Workspace& workspace);

// The magnitude bits that a share `density` of the samples reaches. `peek(i)`
// gives the value of entry i.
template <typename Peek>
uint32_t SampleFloor(size_t n, double density, uint64_t seed, Peek peek,
                     Workspace& workspace);

// Chunk-wise top-k. The floor for collecting a chunk's candidates is guessed
// from the chunks before; a guess that turns out wrong costs time, never
// exactness.
class ChunkTopK {
 public:
  ChunkTopK(double density, Workspace& workspace)
      : density_(density), workspace_(workspace) {}

  uint32_t floor() const { return floor_; }

  // positions[0, count): where the chunk's `values` reach floor(), offset by
  // `base`. Leaves exactly the top KeptOf(density, n) and returns how many.
  uint32_t Narrow(const float* values, uint32_t n, uint16_t base,
                  uint16_t* positions, uint32_t count);

 private:
  double density_;
  Workspace& workspace_;
  uint32_t floor_ = 0;
  float usual_cut_ = 0.0f;  // Of the last few chunks.
  float margin_ = 0.1f;     // How far below it the floor is.
};

// Keeps those of positions[0, count) that the cut keeps, using up its ties.
uint32_t ApplyCut(Cut& cut, const float* values, uint16_t base,
                  uint16_t* positions, uint32_t count);

}  // namespace tensorlightning

#include "kernels/select-inl.h"  // IWYU pragma: keep

#endif  // TENSORLIGHTNING_KERNELS_SELECT_H_
