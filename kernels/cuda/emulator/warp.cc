#include "kernels/cuda/emulator/warp.h"

#include <bit>
#include <cstdlib>

#include "kernels/cuda/emulator/sanitizers.h"

namespace tensorlightning::cuda::emulator {
namespace {

using internal::Collective;
using internal::Contribution;

// Which lane a shuffle reads, by the rules of the CUDA Programming Guide; its
// own where the source is outside the segment.
int SourceLane(Collective kind, int lane, const Contribution& c) {
  const int first = lane & ~(c.width - 1);
  const int end = first + c.width;
  switch (kind) {
    case Collective::kShuffle:
      return first | (c.operand & (c.width - 1));
    case Collective::kShuffleUp: {
      // Distances are unsigned in CUDA: anything large is out of the segment.
      const auto distance = static_cast<unsigned>(c.operand);
      return distance > static_cast<unsigned>(lane - first) ? lane
                                                            : lane - c.operand;
    }
    case Collective::kShuffleDown: {
      const auto distance = static_cast<unsigned>(c.operand);
      return distance >= static_cast<unsigned>(end - lane) ? lane
                                                           : lane + c.operand;
    }
    case Collective::kShuffleXor: {
      // Earlier segments may be read, later ones not.
      const int source = lane ^ c.operand;
      return source < 0 || source >= end ? lane : source;
    }
    default:
      return lane;
  }
}

}  // namespace

const char* Name(Collective kind) {
  switch (kind) {
    case Collective::kSyncWarp:
      return "__syncwarp";
    case Collective::kBallot:
      return "__ballot_sync";
    case Collective::kAny:
      return "__any_sync";
    case Collective::kAll:
      return "__all_sync";
    case Collective::kShuffle:
      return "__shfl_sync";
    case Collective::kShuffleUp:
      return "__shfl_up_sync";
    case Collective::kShuffleDown:
      return "__shfl_down_sync";
    case Collective::kShuffleXor:
      return "__shfl_xor_sync";
  }
  return "?";
}

Warp::Arrival Warp::Arrive(int lane, Collective kind, unsigned mask,
                           const Contribution& mine) {
  const int index = FindOrOpen(kind, mask);
  Meeting& meeting = meetings_[index];
  contributions_[lane] = mine;
  meeting.arrived |= 1u << lane;
  if (meeting.cell != nullptr) Release(meeting.cell);
  Arrival arrival{index, meeting.arrived == mask, std::nullopt};
  if (arrival.complete) arrival.bad_source = Complete(meeting);
  return arrival;
}

uint64_t Warp::Leave(int lane, int index) {
  Meeting& meeting = meetings_[index];
  if (meeting.cell != nullptr) Acquire(meeting.cell);
  meeting.to_leave &= ~(1u << lane);
  if (meeting.to_leave == 0) {
    std::free(meeting.cell);
    meeting.cell = nullptr;
    live_ &= ~(1u << index);
  }
  return results_[lane];
}

void Warp::Reset() {
  for (Meeting& meeting : meetings_) {
    std::free(meeting.cell);
    meeting.cell = nullptr;
  }
  live_ = 0;
}

int Warp::FindOrOpen(Collective kind, unsigned mask) {
  for (unsigned rest = live_; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    const Meeting& meeting = meetings_[i];
    // A complete one that not all have left belongs to the previous round.
    if (meeting.mask == mask && meeting.kind == kind &&
        meeting.arrived != mask) {
      return i;
    }
  }
  const int free = std::countr_one(live_);
  live_ |= 1u << free;
  meetings_[free] = {kind, mask, 0, mask,
                     TsanActive() ? std::malloc(sizeof(uint64_t)) : nullptr};
  return free;
}

std::optional<Warp::BadSource> Warp::Complete(const Meeting& meeting) {
  const unsigned mask = meeting.mask;
  if (meeting.kind >= Collective::kShuffle) {
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      const int source = SourceLane(meeting.kind, lane, contributions_[lane]);
      if ((mask >> source & 1u) == 0) return BadSource{lane, source};
      results_[lane] = contributions_[source].bits;
    }
    return std::nullopt;
  }
  unsigned ballot = 0;
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    ballot |= static_cast<unsigned>(contributions_[lane].bits != 0) << lane;
  }
  uint64_t result = ballot;
  if (meeting.kind == Collective::kAny) result = ballot != 0;
  if (meeting.kind == Collective::kAll) result = ballot == mask;
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    results_[std::countr_zero(rest)] = result;
  }
  return std::nullopt;
}

}  // namespace tensorlightning::cuda::emulator
