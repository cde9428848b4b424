// Three kernels, each with a block per group:
//   PlanGroups   looks at the positions, chooses the segments, measures
//   (offsets)    where each group's bytes begin
//   WriteGroups  writes lengths, scales, values and index
// The index is built in shared memory, bit by bit with atomicOr, because
// neighbouring codes share words; it is never longer than a bitmap and a
// little.
#include "kernels/chunk.h"
#include "kernels/code_format.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/cut.h"
#include "kernels/cuda/encode.h"
#include "kernels/cuda/group_view.cuh"
#include "kernels/cuda/launch.h"

namespace tensorlightning::cuda {
namespace {

constexpr uint32_t kRiceCodes = kMaxRice + 1;
// A bitmap of the group, the headers, and what PlanGroup may exceed them by.
constexpr uint32_t kIndexWords = kGroupEntries / 32 + 64;

__device__ uint32_t WarpSum(uint32_t value) {
  for (uint32_t distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    value += __shfl_down_sync(kAllLanes, value, distance);
  }
  return value;
}

struct PlanScratch {
  ChunkBegins begins;
  BlockTotals totals;
  SharedArray<ChunkShape, kGroupChunks> shapes;
  SharedArray<uint32_t, kGroupChunks * kRiceCodes> quotients;
  SharedValue<GroupPlan> plan;
};

// The shape of one chunk, by one warp.
__device__ void MeasureChunk(const GroupView& view, uint32_t chunk,
                             PlanScratch& scratch) {
  const uint32_t lane = threadIdx.x % kWarpThreads;
  const uint32_t begin = view.Begin(chunk);
  const uint32_t end = begin + view.CountOf(chunk);
  const uint32_t start = chunk * kChunkEntries;
  uint32_t runs = 0;
  uint32_t run_bits = 0;
  uint32_t max_gap = 0;
  uint32_t quotients[kRiceCodes] = {};
  for (uint32_t i = begin + lane; i < end; i += kWarpThreads) {
    const uint32_t gap = view.Gap(i, begin, start);
    max_gap = gap > max_gap ? gap : max_gap;
    if (gap != 0 || i == begin) {
      runs++;
      run_bits += GammaBits(view.Run(i, end));
    }
#pragma unroll
    for (uint32_t b = 0; b < kRiceCodes; ++b) quotients[b] += gap >> b;
  }
  __syncwarp();
  runs = WarpSum(runs);
  run_bits = WarpSum(run_bits);
  for (uint32_t distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    const uint32_t other = __shfl_down_sync(kAllLanes, max_gap, distance);
    max_gap = other > max_gap ? other : max_gap;
  }
#pragma unroll
  for (uint32_t b = 0; b < kRiceCodes; ++b) {
    const uint32_t sum = WarpSum(quotients[b]);
    if (lane == 0) scratch.quotients[chunk * kRiceCodes + b] = sum;
  }
  if (lane == 0) {
    const uint32_t entries = SpanOf(view.entries(), chunk, kChunkEntries);
    const uint32_t next = begin == end ? start : view.Position(end - 1) + 1;
    scratch.shapes[chunk] = ChunkShape{
        entries, end - begin, runs, run_bits, max_gap, start + entries - next};
  }
}

// What entry i of a segment puts into the index.
struct EntryCode {
  uint32_t bits;
  uint32_t number;  // The gap or the position.
  uint32_t run;     // 0: inside a run, nothing to say.
};

__device__ EntryCode CodeOf(const GroupView& view, const Segment& segment,
                            uint32_t first, uint32_t i) {
  const uint32_t begin = segment.first_chunk * kChunkEntries;
  if (segment.kind == kAll) return {0, 0, 0};
  if (segment.kind == kBitmap) return {0, view.Position(i) - begin, 0};
  if (segment.kind == kRaw) return {kPositionBits, view.Position(i) - begin, 0};
  const uint32_t gap = view.Gap(i, first, begin);
  if (segment.kind == kPacked) return {segment.width, gap, 0};
  const uint32_t bits = RiceBits(gap, RiceOf(segment.kind));
  if (!IsRuns(segment.kind)) return {bits, gap, 0};
  if (gap == 0 && i != first) return {0, 0, 0};
  const uint32_t run = view.Run(i, first + segment.count);
  return {bits + GammaBits(run), gap, run};
}

// A bitmap's bits count as part of its header.
__device__ uint32_t BitsBeforeEntries(const GroupView& view,
                                      const Segment& segment) {
  const uint32_t header = SegmentHeaderBits(segment, view.chunks());
  return segment.kind == kBitmap
             ? header +
                   SpanOf(view.entries(), segment.first_chunk, kChunkEntries)
             : header;
}

__device__ uint32_t ScaleBytes(const GroupView& view, ValueCode code) {
  if (!HasScale(code)) return 0;
  uint32_t bytes = 2;
  for (uint32_t j = 0; j < view.chunks(); ++j) {
    bytes += view.CountOf(j) > 0 ? 2 : 0;
  }
  return bytes;
}

__device__ uint32_t ValueBytes(const GroupView& view, ValueCode code) {
  return (view.count() * ValueBits(code) + 7) / 8;
}

// plans, group_bytes: one per group.
__global__ void __launch_bounds__(kThreads)
    PlanGroups(KeptChunks kept, size_t entries, ValueCode code,
               const Control* control, GroupPlan* plans,
               uint32_t* group_bytes) {
  __shared__ PlanScratch scratch;
  if (IsUnusable(control)) return;
  GroupView view(kept, entries, blockIdx.x, scratch.begins);
  view.Load();
  for (uint32_t j = threadIdx.x / kWarpThreads; j < view.chunks();
       j += kWarps) {
    MeasureChunk(view, j, scratch);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    PlanGroup(
        scratch.shapes.data(), view.chunks(),
        [&](uint32_t chunk, uint32_t b) {
          return scratch.quotients[chunk * kRiceCodes + b];
        },
        *scratch.plan);
    plans[blockIdx.x] = *scratch.plan;
  }
  __syncthreads();

  uint32_t bits = 0;
  uint32_t first = 0;
  for (uint32_t s = 0; s < scratch.plan->size; ++s) {
    const Segment segment = scratch.plan->segments[s];
    if (threadIdx.x == 0) bits += BitsBeforeEntries(view, segment);
    for (uint32_t i = first + threadIdx.x; i < first + segment.count;
         i += kThreads) {
      bits += CodeOf(view, segment, first, i).bits;
    }
    first += segment.count;
  }
  bits = BlockSum(bits, scratch.totals);
  if (threadIdx.x != 0) return;
  if (view.count() == 0) {
    group_bytes[blockIdx.x] = 1;
    return;
  }
  const uint32_t body = VarintBytes(view.count() - 1) + ScaleBytes(view, code) +
                        ValueBytes(view, code) + (bits + 7) / 8;
  group_bytes[blockIdx.x] = VarintBytes(body) + body;
}

// ---- Writing. ---------------------------------------------------------------

using IndexWords = SharedArray<uint32_t, kIndexWords>;

struct WriteScratch {
  ChunkBegins begins;
  BlockTotals totals;
  IndexWords index;
};

__device__ void OrBits(IndexWords& words, uint32_t at, uint32_t value,
                       uint32_t width) {
  if (width == 0) return;
  atomicOr(&words[at / 32], value << (at % 32));
  if (at % 32 + width > 32) {
    atomicOr(&words[at / 32 + 1], value >> (32 - at % 32));
  }
}

__device__ void OrRice(IndexWords& words, uint32_t at, uint32_t gap,
                       uint32_t b) {
  const uint32_t quotient = gap >> b;
  OrBits(words, at + quotient, 1 | (gap & ((1u << b) - 1)) << 1, b + 1);
}

__device__ void OrGamma(IndexWords& words, uint32_t at, uint32_t value) {
  const uint32_t log = FloorLog2(value);
  OrBits(words, at + log, 1 | (value & ((1u << log) - 1)) << 1, log + 1);
}

__device__ void WriteHeader(IndexWords& words, uint32_t at,
                            const Segment& segment, uint32_t chunks) {
  OrBits(words, at, segment.kind, kKindBits);
  at += kKindBits;
  switch (segment.kind) {
    case kAll:
    case kBitmap:
      return;
    case kRaw:
      return OrBits(words, at, segment.count - 1, kChunkCountBits);
    case kPacked:
      OrBits(words, at, segment.width, kWidthBits);
      return OrBits(words, at + kWidthBits, segment.count - 1, kChunkCountBits);
    default:
      OrBits(words, at, segment.chunks - 1u, kChunksBits);
      if (!CoversRest(segment, chunks)) {
        OrBits(words, at + kChunksBits, segment.count, kSpanCountBits);
      }
  }
}

// Writes an entry's code at bit `at` (a bitmap's: where the bitmap begins).
__device__ void WriteEntry(IndexWords& words, uint32_t at, uint8_t kind,
                           const EntryCode& code) {
  if (kind == kBitmap) return OrBits(words, at + code.number, 1, 1);
  if (code.bits == 0) return;
  if (!SpansChunks(kind)) return OrBits(words, at, code.number, code.bits);
  const uint32_t b = RiceOf(kind);
  OrRice(words, at, code.number, b);
  if (IsRuns(kind)) {
    OrGamma(words, at + RiceBits(code.number, b), code.run);
  }
}

// The group's index, into shared memory; returns its length in bits.
__device__ uint32_t BuildIndex(const GroupView& view, const GroupPlan& plan,
                               WriteScratch& scratch) {
  for (uint32_t w = threadIdx.x; w < kIndexWords; w += kThreads) {
    scratch.index[w] = 0;
  }
  __syncthreads();
  uint32_t at = 0;
  uint32_t first = 0;
  for (uint32_t s = 0; s < plan.size; ++s) {
    const Segment segment = plan.segments[s];
    const uint32_t end = first + segment.count;
    if (threadIdx.x == 0) {
      WriteHeader(scratch.index, at, segment, view.chunks());
    }
    const uint32_t bitmap = at + kKindBits;
    at += BitsBeforeEntries(view, segment);
    for (uint32_t tile = first; tile < end; tile += kThreads) {
      const uint32_t i = tile + threadIdx.x;
      EntryCode code{};
      if (i < end) code = CodeOf(view, segment, first, i);
      uint32_t sum;
      const uint32_t before = BlockScan(code.bits, scratch.totals, &sum);
      if (i < end) {
        WriteEntry(scratch.index,
                   segment.kind == kBitmap ? bitmap : at + before, segment.kind,
                   code);
      }
      at += sum;
    }
    first = end;
  }
  __syncthreads();
  return at;
}

// Byte `b` of the packed values.
__device__ std::byte ValueByte(const GroupView& view, ValueCode code,
                               uint32_t b) {
  const uint32_t width = ValueBits(code);
  if (width >= 8) {
    const uint32_t each = width / 8;
    return static_cast<std::byte>(view.Symbol(b / each) >> (b % each * 8));
  }
  const uint32_t each = 8 / width;
  uint32_t byte = 0;
  for (uint32_t e = 0; e < each && b * each + e < view.count(); ++e) {
    byte |= view.Symbol(b * each + e) << (e * width);
  }
  return static_cast<std::byte>(byte);
}

__device__ std::byte* PutVarint(std::byte* out, uint32_t value) {
  for (; value >= 0x80; value >>= 7) {
    *out++ = static_cast<std::byte>(value | 0x80);
  }
  *out++ = static_cast<std::byte>(value);
  return out;
}

__device__ void Put16(std::byte* out, uint32_t value) {
  out[0] = static_cast<std::byte>(value);
  out[1] = static_cast<std::byte>(value >> 8);
}

__device__ void Put32(std::byte* out, uint32_t value) {
  Put16(out, value);
  Put16(out + 2, value >> 16);
}

__device__ void WriteFront(std::byte* out, const GroupView& view,
                           ValueCode code, uint32_t body) {
  out = PutVarint(out, body);
  out = PutVarint(out, view.count() - 1);
  if (!HasScale(code)) return;
  uint32_t mask = 0;
  std::byte* at = out + 2;
  for (uint32_t j = 0; j < view.chunks(); ++j) {
    if (view.CountOf(j) == 0) continue;
    mask |= 1u << j;
    Put16(at, view.Scale(j));
    at += 2;
  }
  Put16(out, mask);
}

__global__ void __launch_bounds__(kThreads)
    WriteGroups(KeptChunks kept, size_t entries, ValueCode code,
                const GroupPlan* plans, const Counter* offsets,
                const Control* control, std::byte* code_bytes) {
  __shared__ WriteScratch scratch;
  if (IsUnusable(control)) return;
  GroupView view(kept, entries, blockIdx.x, scratch.begins);
  view.Load();
  std::byte* const out = code_bytes + offsets[blockIdx.x];
  if (view.count() == 0) {
    if (threadIdx.x == 0) *out = std::byte{0};
    return;
  }
  const uint32_t bits = BuildIndex(view, plans[blockIdx.x], scratch);
  const uint32_t index_bytes = (bits + 7) / 8;
  const uint32_t value_bytes = ValueBytes(view, code);
  const uint32_t front = VarintBytes(view.count() - 1) + ScaleBytes(view, code);
  const uint32_t body = front + value_bytes + index_bytes;
  std::byte* const values = out + VarintBytes(body) + front;
  if (threadIdx.x == 0) WriteFront(out, view, code, body);
  for (uint32_t b = threadIdx.x; b < value_bytes; b += kThreads) {
    values[b] = ValueByte(view, code, b);
  }
  for (uint32_t b = threadIdx.x; b < index_bytes; b += kThreads) {
    values[value_bytes + b] =
        static_cast<std::byte>(scratch.index[b / 4] >> (b % 4 * 8));
  }
}

// After the offsets of the groups: `kept` goes into the header too.
__global__ void __launch_bounds__(kThreads)
    WriteCodeHeader(const uint32_t* counts, size_t chunks, size_t entries,
                    ValueCode code, Control* control, std::byte* out) {
  __shared__ BlockTotals totals;
  if (IsUnusable(control)) return;
  uint32_t kept = 0;
  for (size_t j = threadIdx.x; j < chunks; j += kThreads) kept += counts[j];
  kept = BlockSum(kept, totals);
  if (threadIdx.x != 0) return;
  control->kept = kept;
  Put32(out, kCodeMagic);
  Put32(out + 4, static_cast<uint32_t>(code));
  Put32(out + 8, static_cast<uint32_t>(entries));
  Put32(out + 12, kept);
}

__global__ void __launch_bounds__(kThreads)
    FlattenChunks(KeptChunks kept, const Counter* offsets,
                  const Control* control, uint32_t* indices, float* values) {
  if (IsUnusable(control)) return;
  const size_t chunk = blockIdx.x;
  const size_t slot = chunk * kept.slots;
  const uint32_t group_begin =
      static_cast<uint32_t>(chunk / kGroupChunks * kGroupEntries);
  for (uint32_t i = threadIdx.x; i < kept.counts[chunk]; i += kThreads) {
    indices[offsets[chunk] + i] = group_begin + kept.positions[slot + i];
    if (values != nullptr) {
      values[offsets[chunk] + i] = __uint_as_float(kept.symbols[slot + i]);
    }
  }
}

}  // namespace

Status ReserveForEncoding(size_t entries, DeviceWorkspace& workspace) {
  const size_t groups = GroupCount(entries);
  Status status = workspace.plans.Reserve(groups);
  if (status.ok()) status = workspace.group_bytes.Reserve(groups);
  if (status.ok()) status = workspace.group_offsets.Reserve(groups + 1);
  return status;
}

Status EncodeGroups(const KeptChunks& kept, size_t entries, ValueCode code,
                    DeviceWorkspace& workspace, std::byte* out,
                    cudaStream_t stream) {
  const size_t groups = GroupCount(entries);
  Control* const control = workspace.control.get();
  Status status = Done{};
  const auto blocks = static_cast<uint32_t>(groups);
  if (blocks > 0) {
    status = ToStatus(
        Launch(PlanGroups, blocks, kThreads, stream, kept, entries, code,
               control, workspace.plans.get(), workspace.group_bytes.get()),
        "plan groups");
  }
  if (status.ok()) {
    status = MakeOffsets(workspace.group_bytes.get(), groups, kCodeHeaderBytes,
                         workspace.group_offsets.get(), control, stream);
  }
  if (status.ok() && blocks > 0) {
    status = ToStatus(Launch(WriteGroups, blocks, kThreads, stream, kept,
                             entries, code, workspace.plans.get(),
                             workspace.group_offsets.get(), control, out),
                      "write groups");
  }
  if (status.ok()) {
    status = ToStatus(Launch(WriteCodeHeader, 1, kThreads, stream, kept.counts,
                             ChunkCount(entries), entries, code, control, out),
                      "write header");
  }
  return status;
}

Status Flatten(const KeptChunks& kept, size_t entries,
               DeviceWorkspace& workspace, uint32_t* indices, float* values,
               cudaStream_t stream) {
  const size_t chunks = ChunkCount(entries);
  Status status = workspace.chunk_offsets.Reserve(chunks + 1);
  if (status.ok()) {
    status = MakeOffsets(kept.counts, chunks, 0, workspace.chunk_offsets.get(),
                         workspace.control.get(), stream);
  }
  if (status.ok() && chunks > 0) {
    status =
        ToStatus(Launch(FlattenChunks, static_cast<uint32_t>(chunks), kThreads,
                        stream, kept, workspace.chunk_offsets.get(),
                        workspace.control.get(), indices, values),
                 "flatten");
  }
  return status;
}

}  // namespace tensorlightning::cuda
