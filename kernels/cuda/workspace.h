// The device memory that the CUDA kernels work in; the counterpart of the
// CPU's Workspace. One per stream.
//
//   kernels of one call, in order, all on the caller's stream:
//     check -> [prepare -> cut -> ties] -> select -> plan -> offsets -> write
//   Control is what they tell each other: a kernel that finds `unusable` set
//   leaves everything alone, so that one synchronisation at the end is enough.
#ifndef TENSORLIGHTNING_KERNELS_CUDA_WORKSPACE_H_
#define TENSORLIGHTNING_KERNELS_CUDA_WORKSPACE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/code_format.h"
#include "kernels/cuda/buffer.h"
#include "kernels/host_device.h"

namespace tensorlightning::cuda {

inline constexpr uint32_t kMaxInputs = 3;
inline constexpr uint32_t kBins = 2048;

// The type of CUDA's 64-bit atomics.
using Counter = unsigned long long;  // NOLINT(google-runtime-int)

struct Control {
  // Per input: how many values are NaN, Inf or huge, and where the first is.
  Counter unusable[kMaxInputs];
  Counter first[kMaxInputs];

  // The cut: all magnitudes above are kept, and `ties` of those equal to it.
  // While it is being found, the bits known so far and the rank left.
  uint32_t magnitude;
  uint32_t known_bits;
  Counter ties;

  Counter total;  // Of the last offsets made.
  Counter kept;
};

// Whether some input was refused: nothing may be written then.
TL_HOST_DEVICE inline bool IsUnusable(const Control* control) {
  for (const Counter count : control->unusable) {
    if (count != 0) return true;
  }
  return false;
}

struct DeviceWorkspace {
  DeviceBuffer<Control> control;

  // Per chunk: what was kept, in `slots` places each.
  DeviceBuffer<uint16_t> positions;
  DeviceBuffer<uint32_t> symbols;
  DeviceBuffer<uint32_t> counts;
  DeviceBuffer<uint16_t> scales;
  DeviceBuffer<uint32_t> ties;
  DeviceBuffer<Counter> chunk_offsets;

  // Per group.
  DeviceBuffer<GroupPlan> plans;
  DeviceBuffer<uint32_t> group_bytes;
  DeviceBuffer<Counter> group_offsets;

  // Global top-k and sampling.
  DeviceBuffer<float> dense;
  DeviceBuffer<float> samples;
  DeviceBuffer<uint32_t> bins;

  // A message to be decoded: its bytes, where its groups begin, and its
  // positions once they are known.
  DeviceBuffer<std::byte> message;
  DeviceBuffer<Counter> message_offsets;
  DeviceBuffer<Counter> message_entries;
  DeviceBuffer<uint16_t> message_positions;
};

// What select leaves behind for plan and write.
struct KeptChunks {
  const uint16_t* positions;  // Within the group.
  const uint32_t* symbols;
  const uint32_t* counts;
  const uint16_t* scales;
  uint32_t slots;  // Places per chunk.
};

}  // namespace tensorlightning::cuda

#endif  // TENSORLIGHTNING_KERNELS_CUDA_WORKSPACE_H_
