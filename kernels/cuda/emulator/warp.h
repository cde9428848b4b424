// The warp collectives of one warp: lanes meet by kind and mask.
//
//   Arrive(lane) ──▶ open meeting ──▶ last named lane arrives: complete
//                                       results for all; waiters become ready
//   Leave(lane)  ──▶ each takes its result; the last one frees the meeting
//
// The block scheduler owns the warps and does the waiting. A lane is in at most
// one meeting, so values and results are kept per lane, and 32 meetings are
// enough.
#ifndef KERNELS_CUDA_EMULATOR_WARP_H_
#define KERNELS_CUDA_EMULATOR_WARP_H_

#include <array>
#include <cstdint>
#include <optional>

#include "kernels/cuda/emulator/runtime.h"

namespace tensorlightning::cuda::emulator {

inline constexpr int kLanes = 32;

const char* Name(internal::Collective kind);

class Warp {
 public:
  // A shuffle that read a lane outside the mask.
  struct BadSource {
    int reader;
    int source;
  };
  struct Arrival {
    int meeting;
    bool complete;
    std::optional<BadSource> bad_source;
  };

  Arrival Arrive(int lane, internal::Collective kind, unsigned mask,
                 const internal::Contribution& mine);
  // After the meeting is complete; returns the lane's result.
  uint64_t Leave(int lane, int index);

  // For reports: what an unfinished meeting waits for.
  unsigned Mask(int meeting) const { return meetings_[meeting].mask; }
  unsigned Arrived(int meeting) const { return meetings_[meeting].arrived; }
  internal::Collective Kind(int meeting) const {
    return meetings_[meeting].kind;
  }

  // Drops what an abandoned block left behind.
  void Reset();

 private:
  struct Meeting {
    internal::Collective kind;
    unsigned mask;
    unsigned arrived;
    unsigned to_leave;
    // TSan's edges among exactly the participants. From the heap, because a
    // freed address forgets its edges; a reused one would hand them on.
    void* cell = nullptr;
  };

  int FindOrOpen(internal::Collective kind, unsigned mask);
  std::optional<BadSource> Complete(const Meeting& meeting);

  unsigned live_ = 0;  // bit per meeting in use
  std::array<Meeting, kLanes> meetings_;
  std::array<internal::Contribution, kLanes> contributions_;
  std::array<uint64_t, kLanes> results_;
};

}  // namespace tensorlightning::cuda::emulator

#endif  // KERNELS_CUDA_EMULATOR_WARP_H_
