// The memory that kernels work in, kept from call to call so that a step of
// training allocates nothing. One per thread that calls kernels; about 700 KB,
// and more only while global top-k is used.
#ifndef TENSORLIGHTNING_KERNELS_WORKSPACE_H_
#define TENSORLIGHTNING_KERNELS_WORKSPACE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/chunk.h"
#include "kernels/encode.h"

namespace tensorlightning {

struct Workspace {
  // The group that is being encoded.
  std::unique_ptr<GroupEntries> group = std::make_unique<GroupEntries>();

  // One chunk's values and candidates.
  std::array<float, kChunkEntries> values;
  std::array<uint32_t, kChunkEntries> magnitudes;

  // Grown on first use.
  std::vector<float> dense;          // Global top-k of a difference.
  std::vector<uint32_t> samples;     // Sampled thresholds.
  std::vector<uint32_t> indices;     // Candidates of a whole vector, and
  std::vector<uint32_t> candidates;  // their magnitudes.
  std::vector<uint32_t> uncertain;   // Those near the cut.
  std::vector<uint32_t> radix_bins;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_WORKSPACE_H_
