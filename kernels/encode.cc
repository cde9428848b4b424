#include "kernels/encode.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>

#include "kernels/bits.h"

namespace tensorlightning {
namespace {

using Positions = std::span<const uint16_t>;

ChunkShape ShapeOf(Positions positions, uint32_t begin, uint32_t entries) {
  ChunkShape shape{};
  shape.entries = entries;
  shape.count = static_cast<uint32_t>(positions.size());
  uint32_t next = begin;  // Where an adjacent entry would be.
  uint32_t run = 0;
  for (const uint16_t position : positions) {
    const uint32_t gap = position - next;
    shape.max_gap = std::max(shape.max_gap, gap);
    if (gap != 0 || run == 0) {
      if (run > 0) shape.run_bits += GammaBits(run);
      shape.runs++;
      run = 0;
    }
    run++;
    next = position + 1u;
  }
  if (run > 0) shape.run_bits += GammaBits(run);
  shape.tail = begin + entries - next;
  return shape;
}

uint32_t SumOfQuotients(Positions positions, uint32_t begin, uint32_t b) {
  uint32_t sum = 0;
  uint32_t next = begin;
  for (const uint16_t position : positions) {
    sum += (position - next) >> b;
    next = position + 1u;
  }
  return sum;
}

void WriteRuns(BitWriter& bits, Positions positions, uint32_t next,
               uint32_t b) {
  for (size_t i = 0; i < positions.size();) {
    bits.WriteRice(positions[i] - next, b);
    size_t end = i + 1;
    while (end < positions.size() && positions[end] == positions[end - 1] + 1) {
      ++end;
    }
    bits.WriteGamma(static_cast<uint32_t>(end - i));
    next = positions[end - 1] + 1u;
    i = end;
  }
}

void WriteBitmap(BitWriter& bits, Positions positions, uint32_t begin,
                 uint32_t entries) {
  size_t i = 0;
  for (uint32_t at = 0; at < entries; at += 32) {
    uint32_t word = 0;
    for (; i < positions.size() && positions[i] - begin < at + 32; ++i) {
      word |= 1u << (positions[i] - begin - at);
    }
    bits.Write(word, std::min(32u, entries - at));
  }
}

void WriteSegment(BitWriter& bits, const Segment& segment, Positions positions,
                  uint32_t group_entries) {
  const auto chunks = static_cast<uint32_t>(ChunkCount(group_entries));
  const uint32_t begin = segment.first_chunk * kChunkEntries;
  const auto count = static_cast<uint32_t>(positions.size());
  bits.Write(segment.kind, kKindBits);
  switch (segment.kind) {
    case kAll:
      return;
    case kBitmap:
      return WriteBitmap(
          bits, positions, begin,
          SpanOf(group_entries, segment.first_chunk, kChunkEntries));
    case kRaw:
      bits.Write(count - 1, kChunkCountBits);
      for (const uint16_t position : positions) {
        bits.Write(position - begin, kPositionBits);
      }
      return;
    case kPacked: {
      bits.Write(segment.width, kWidthBits);
      bits.Write(count - 1, kChunkCountBits);
      uint32_t next = begin;
      for (const uint16_t position : positions) {
        bits.Write(position - next, segment.width);
        next = position + 1u;
      }
      return;
    }
    default:
      break;
  }
  bits.Write(segment.chunks - 1u, kChunksBits);
  if (!CoversRest(segment, chunks)) bits.Write(count, kSpanCountBits);
  const uint32_t b = RiceOf(segment.kind);
  if (IsRuns(segment.kind)) return WriteRuns(bits, positions, begin, b);
  uint32_t next = begin;
  for (const uint16_t position : positions) {
    bits.WriteRice(position - next, b);
    next = position + 1u;
  }
}

std::byte* WriteIndex(std::byte* out, const GroupEntries& kept,
                      uint32_t group_entries) {
  const auto chunks = static_cast<uint32_t>(ChunkCount(group_entries));
  const auto of_chunk = [&](uint32_t j) {
    return Positions(&kept.positions[kept.chunk_begin[j]],
                     kept.chunk_begin[j + 1] - kept.chunk_begin[j]);
  };
  std::array<ChunkShape, kGroupChunks> shapes;
  for (uint32_t j = 0; j < chunks; ++j) {
    shapes[j] = ShapeOf(of_chunk(j), j * kChunkEntries,
                        SpanOf(group_entries, j, kChunkEntries));
  }
  // The planner asks for few parameters, and for those more than once.
  constexpr uint32_t kUnknown = UINT32_MAX;
  std::array<std::array<uint32_t, kMaxRice + 1>, kGroupChunks> quotients;
  for (auto& row : quotients) row.fill(kUnknown);
  GroupPlan plan;
  PlanGroup(
      shapes.data(), chunks,
      [&](uint32_t j, uint32_t b) {
        uint32_t& sum = quotients[j][b];
        if (sum == kUnknown) {
          sum = SumOfQuotients(of_chunk(j), j * kChunkEntries, b);
        }
        return sum;
      },
      plan);

  BitWriter bits(out);
  for (uint32_t s = 0; s < plan.size; ++s) {
    const Segment& segment = plan.segments[s];
    WriteSegment(
        bits, segment,
        Positions(&kept.positions[kept.chunk_begin[segment.first_chunk]],
                  segment.count),
        group_entries);
  }
  return bits.Finish();
}

std::byte* WriteValues(std::byte* out, const GroupEntries& kept,
                       ValueCode code) {
  const uint32_t width = ValueBits(code);
  if (width == 32) {
    const size_t bytes = size_t{kept.count} * 4;
    std::memcpy(out, kept.symbols.data(), bytes);
    return out + bytes;
  }
  BitWriter bits(out);
  for (uint32_t i = 0; i < kept.count; ++i) {
    bits.Write(kept.symbols[i], width);
  }
  return bits.Finish();
}

std::byte* WriteScales(std::byte* out, const GroupEntries& kept) {
  uint16_t mask = 0;
  std::byte* at = out + sizeof(mask);
  for (uint32_t j = 0; j < kGroupChunks; ++j) {
    if (kept.chunk_begin[j] == kept.chunk_begin[j + 1]) continue;
    mask |= static_cast<uint16_t>(1u << j);
    std::memcpy(at, &kept.scales[j], sizeof(uint16_t));
    at += sizeof(uint16_t);
  }
  std::memcpy(out, &mask, sizeof(mask));
  return at;
}

std::byte* WriteVarint(std::byte* out, uint32_t value) {
  for (; value >= 0x80; value >>= 7) {
    *out++ = static_cast<std::byte>(value | 0x80);
  }
  *out++ = static_cast<std::byte>(value);
  return out;
}

}  // namespace

Encoder::Encoder(std::span<std::byte> out, size_t entries, ValueCode code)
    : out_(out), entries_(entries), code_(code) {
  full_ = out_.size() < kCodeHeaderBytes;
}

void Encoder::AddGroup(const GroupEntries& kept) {
  assert(groups_ < GroupCount(entries_));
  const uint32_t entries = SpanOf(entries_, groups_++, kGroupEntries);
  if (full_ || out_.size() - used_ < MaxCodeBytes(entries, kept.count, code_) -
                                         kCodeHeaderBytes) {
    full_ = true;
    return;
  }
  kept_ += kept.count;
  std::byte* const begin = out_.data() + used_;
  if (kept.count == 0) {
    *begin = std::byte{0};
    used_ += 1;
    return;
  }
  // The body's length comes first and is known last: leave the room that it
  // will most likely take, and move the body in the rare other case.
  const uint32_t guess = kept.count < 24 ? 1 : kept.count < 8192 ? 2 : 3;
  std::byte* const body = begin + guess;
  std::byte* at = WriteVarint(body, kept.count - 1);
  if (HasScale(code_)) at = WriteScales(at, kept);
  at = WriteValues(at, kept, code_);
  at = WriteIndex(at, kept, entries);
  const auto bytes = static_cast<uint32_t>(at - body);
  const uint32_t length_bytes = VarintBytes(bytes);
  if (length_bytes != guess) std::memmove(begin + length_bytes, body, bytes);
  WriteVarint(begin, bytes);
  used_ += length_bytes + bytes;
}

Result<size_t> Encoder::Finish() {
  if (full_) {
    return Error{ErrorCode::kInvalidArgument,
                 "the code of " + std::to_string(entries_) +
                     " entries does not fit into " +
                     std::to_string(out_.size()) +
                     " bytes: give it MaxCodeBytes()"};
  }
  assert(groups_ == GroupCount(entries_));
  const auto put = [&](size_t offset, uint32_t value) {
    std::memcpy(out_.data() + offset, &value, sizeof(value));
  };
  put(0, kCodeMagic);
  put(4, static_cast<uint32_t>(code_));
  put(8, static_cast<uint32_t>(entries_));
  put(12, static_cast<uint32_t>(kept_));
  return used_;
}

}  // namespace tensorlightning
