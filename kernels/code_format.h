// The code: how the kept entries of a vector become bytes.
//
//   code   := header group*                    one group per 65,536 entries
//   header := magic "TLC1" (4) value_code (1) zero (3) entries (4) kept (4)
//   group  := varint(body bytes) body          0: nothing kept in this group
//   body   := varint(count - 1)
//             [ mask (2) scale (2)* ]          8-, 4- and 2-bit values only:
//                                              which chunks have entries, and
//                                              the step of each such chunk
//             values                           count x bits, packed
//             index                            segments, packed
//
// All numbers are little-endian; packed bits fill each byte from its lowest
// bit, and each packed part ends on a byte, padded with zeros.
//
// The index is a row of segments that cover the group's chunks in order and
// ends when `count` positions have been given. A segment is
//
//   kind (5 bits)   what follows, per segment
//   0..12  rice b   chunks-1 (4) count (16, unless it reaches the end),
//                   then per entry the gap to the one before: gap >> b in
//                   unary (zeros, then a one), then b low bits
//   13..25 runs b   the same fields; then per run of adjacent entries its gap
//                   as above and its length in Elias' gamma code
//   26     packed   width (4) count-1 (12), then gaps of `width` bits
//   27     raw      count-1 (12), then positions of 12 bits
//   28     bitmap   one bit per entry of the chunk
//   29     all      every entry of the chunk
//
// rice and runs may cover several chunks, their gaps running on across the
// chunk edges; the others cover one. The first gap counts from the segment's
// first entry. Rice codes of the right parameter come within a few per cent of
// the entropy of scattered positions; runs are for clustered ones.
#ifndef TENSORLIGHTNING_KERNELS_CODE_FORMAT_H_
#define TENSORLIGHTNING_KERNELS_CODE_FORMAT_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/chunk.h"
#include "kernels/quantise.h"

namespace tensorlightning {

inline constexpr uint32_t kCodeMagic = 0x31434c54;  // "TLC1"
inline constexpr size_t kCodeHeaderBytes = 16;

inline constexpr uint32_t kMaxRice = 12;
enum IndexKind : uint8_t {
  kRice = 0,   // kRice + b
  kRuns = 13,  // kRuns + b
  kPacked = 26,
  kRaw = 27,
  kBitmap = 28,
  kAll = 29,
  kIndexKinds = 30,
};

inline constexpr uint32_t kKindBits = 5;
inline constexpr uint32_t kChunksBits = 4;
inline constexpr uint32_t kSpanCountBits = 16;   // rice, runs
inline constexpr uint32_t kWidthBits = 4;        // packed
inline constexpr uint32_t kChunkCountBits = 12;  // packed, raw
inline constexpr uint32_t kPositionBits = kChunkShift;

constexpr bool SpansChunks(uint8_t kind) { return kind < kPacked; }
constexpr bool IsRuns(uint8_t kind) { return kind >= kRuns && kind < kPacked; }
constexpr uint32_t RiceOf(uint8_t kind) {
  return IsRuns(kind) ? kind - kRuns : kind;
}

constexpr uint32_t FloorLog2(uint32_t value) {
  return value == 0 ? 0 : 31 - static_cast<uint32_t>(std::countl_zero(value));
}
constexpr uint32_t BitWidth(uint32_t value) {
  return 32 - static_cast<uint32_t>(std::countl_zero(value));
}
constexpr uint32_t GammaBits(uint32_t value) {
  return 2 * FloorLog2(value) + 1;
}
constexpr uint32_t RiceBits(uint32_t gap, uint32_t b) {
  return (gap >> b) + 1 + b;
}

constexpr uint32_t VarintBytes(uint32_t value) {
  return value == 0 ? 1 : (BitWidth(value) + 6) / 7;
}

// Room that the code of `entries` entries, `kept` of them kept, never exceeds.
constexpr size_t MaxCodeBytes(size_t entries, size_t kept, ValueCode code) {
  // Lengths and mask; a scale per chunk, and what its part of the index may
  // exceed the cheaper of raw and bitmap by (see PlanGroup); padding. At the
  // end, 8 bytes that the packer may touch.
  constexpr size_t kPerGroup = 5 + 5 + 2 + kGroupChunks * (2 + 6) + 4;
  const size_t sparse_index = kept * 2;
  const size_t bitmap_index = entries / 8 + GroupCount(entries);
  const size_t index =
      sparse_index < bitmap_index ? sparse_index : bitmap_index;
  return kCodeHeaderBytes + GroupCount(entries) * kPerGroup +
         (kept * ValueBits(code) + 7) / 8 + index + 8;
}

// ---- Planning: which kind each chunk gets. ---------------------------------

// What the planner has to know of the positions kept in one chunk. Gaps are
// counted from the chunk's start.
struct ChunkShape {
  uint32_t entries;   // Length of the chunk.
  uint32_t count;     // Positions kept.
  uint32_t runs;      // Runs of adjacent ones.
  uint32_t run_bits;  // Sum of GammaBits(run length).
  uint32_t max_gap;
  uint32_t tail;  // Entries after the last position kept.
};

struct Segment {
  uint8_t kind;
  uint8_t first_chunk;
  uint8_t chunks;
  uint8_t width;   // packed
  uint32_t count;  // Positions in the segment.
};

struct KindCost {
  uint8_t kind;
  uint32_t bits;
};

struct GroupPlan {
  Segment segments[kGroupChunks];
  uint32_t size;
  KindCost alone[kGroupChunks];  // The planner's: each chunk by itself.
};

// The cheaper of rice and runs for positions that share `runs` and `count`.
// `quotients(b)` is the sum of gap >> b over the positions.
template <typename Quotients>
constexpr KindCost BestSpanningKind(uint32_t entries, uint32_t count,
                                    uint32_t runs, uint32_t run_bits,
                                    Quotients quotients) {
  KindCost best{kRice, UINT32_MAX};
  for (int family = 0; family < 2; ++family) {
    const uint32_t codes = family == 0 ? count : runs;
    const uint32_t fixed = family == 0 ? 0 : run_bits;
    // The best parameter for a mean gap g is floor(log2(g + 1)), or one less.
    uint32_t b = FloorLog2((entries - count) / codes + 1);
    b = b > kMaxRice ? kMaxRice : b;
    for (uint32_t lower = b > 0 ? 1 : 0;; --lower) {
      const uint32_t bits =
          fixed + codes * (b - lower + 1) + quotients(b - lower);
      if (bits < best.bits) {
        best = {static_cast<uint8_t>((family == 0 ? kRice : kRuns) + b - lower),
                bits};
      }
      if (lower == 0) break;
    }
  }
  return best;
}

// The cheapest kind that is confined to the chunk.
constexpr KindCost BestSingleKind(const ChunkShape& chunk) {
  if (chunk.count == chunk.entries) return {kAll, kKindBits};
  KindCost best{kBitmap, kKindBits + chunk.entries};
  const uint32_t width = BitWidth(chunk.max_gap);
  const uint32_t raw =
      kKindBits + kChunkCountBits + chunk.count * kPositionBits;
  const uint32_t packed =
      kKindBits + kWidthBits + kChunkCountBits + chunk.count * width;
  if (raw < best.bits) best = {kRaw, raw};
  if (packed < best.bits) best = {kPacked, packed};
  return best;
}

inline constexpr uint32_t kSpanHeaderBits =
    kKindBits + kChunksBits + kSpanCountBits;

// What a chunk costs as part of a long rice or runs segment. Its tail is part
// of the gap to the next chunk's first position.
template <typename Quotients>
constexpr uint32_t SpanningBits(const ChunkShape& chunk, uint8_t kind,
                                Quotients quotients) {
  const uint32_t b = RiceOf(kind);
  return (IsRuns(kind) ? chunk.run_bits + chunk.runs * (b + 1)
                       : chunk.count * (b + 1)) +
         quotients(b) + (chunk.tail >> b);
}

// The cheapest way to say a chunk by itself.
template <typename Quotients>
constexpr KindCost BestAlone(const ChunkShape& chunk, Quotients quotients) {
  if (chunk.count == 0) return {kRice + kMaxRice, kSpanHeaderBits};  // Skipped.
  const KindCost single = BestSingleKind(chunk);
  const KindCost spanning = BestSpanningKind(
      chunk.entries, chunk.count, chunk.runs, chunk.run_bits, quotients);
  return spanning.bits + kSpanHeaderBits < single.bits
             ? KindCost{spanning.kind, spanning.bits + kSpanHeaderBits}
             : single;
}

constexpr uint32_t Cheaper(uint32_t a, uint32_t b) { return a < b ? a : b; }

// Chooses the segments of a group: one rice or runs code for all, from which a
// chunk departs only when that saves more than the header of the segment with
// which the common code resumes. The common code is the one that costs least
// when chunks may do that. `quotients(chunk, b)` is the sum of gap >> b over
// the chunk's positions. Depends on nothing but its arguments: CPU and GPU plan
// alike. (`plan` is no return value so that a GPU can keep it in shared
// memory.)
template <typename Quotients>
constexpr void PlanGroup(const ChunkShape* shapes, uint32_t chunks,
                         Quotients quotients, GroupPlan& plan) {
  const auto of_chunk = [&](uint32_t j) {
    return [&quotients, j](uint32_t b) { return quotients(j, b); };
  };
  plan.size = 0;
  uint32_t left = 0;
  for (uint32_t j = 0; j < chunks; ++j) {
    left += shapes[j].count;
    plan.alone[j] = BestAlone(shapes[j], of_chunk(j));
  }
  if (left == 0) return;

  // Each chunk's own choice is a candidate.
  KindCost common{kRice, UINT32_MAX};
  uint32_t tried = 0;
  for (uint32_t j = 0; j < chunks; ++j) {
    if (shapes[j].count == 0) continue;
    const uint8_t kind =
        BestSpanningKind(shapes[j].entries, shapes[j].count, shapes[j].runs,
                         shapes[j].run_bits, of_chunk(j))
            .kind;
    if ((tried >> kind & 1) != 0) continue;
    tried |= 1u << kind;
    uint32_t bits = 0;
    for (uint32_t i = 0; i < chunks; ++i) {
      bits += Cheaper(SpanningBits(shapes[i], kind, of_chunk(i)),
                      plan.alone[i].bits + kSpanHeaderBits);
    }
    if (bits < common.bits) common = {kind, bits};
  }

  for (uint32_t j = 0; j < chunks && left > 0; ++j) {
    const ChunkShape& chunk = shapes[j];
    const bool departs = plan.alone[j].bits + kSpanHeaderBits <
                         SpanningBits(chunk, common.kind, of_chunk(j));
    const uint8_t kind = departs ? plan.alone[j].kind : common.kind;
    Segment* last = plan.size > 0 ? &plan.segments[plan.size - 1] : nullptr;
    if (last != nullptr && SpansChunks(kind) && last->kind == kind) {
      last->chunks++;
      last->count += chunk.count;
    } else {
      plan.segments[plan.size++] =
          Segment{kind, static_cast<uint8_t>(j), 1,
                  static_cast<uint8_t>(BitWidth(chunk.max_gap)), chunk.count};
    }
    left -= chunk.count;
  }
  // A last segment that reaches the group's end need not say its count.
  Segment& last = plan.segments[plan.size - 1];
  if (SpansChunks(last.kind)) {
    last.chunks = static_cast<uint8_t>(chunks - last.first_chunk);
  }
}

// Whether the segment gives all positions that the group still owes.
constexpr bool CoversRest(const Segment& segment, uint32_t chunks) {
  return uint32_t{segment.first_chunk} + segment.chunks == chunks;
}

constexpr uint32_t SegmentHeaderBits(const Segment& segment, uint32_t chunks) {
  switch (segment.kind) {
    case kPacked:
      return kKindBits + kWidthBits + kChunkCountBits;
    case kRaw:
      return kKindBits + kChunkCountBits;
    case kBitmap:
    case kAll:
      return kKindBits;
    default:
      return kKindBits + kChunksBits +
             (CoversRest(segment, chunks) ? 0 : kSpanCountBits);
  }
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_CODE_FORMAT_H_
