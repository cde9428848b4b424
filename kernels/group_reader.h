// Taking one group of a code apart: shared by the CPU's decoder, which checks
// every byte, and the GPU's, which is given messages that passed that check.
#ifndef TENSORLIGHTNING_KERNELS_GROUP_READER_H_
#define TENSORLIGHTNING_KERNELS_GROUP_READER_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/bits.h"
#include "kernels/chunk.h"
#include "kernels/code_format.h"
#include "kernels/host_device.h"
#include "kernels/quantise.h"

namespace tensorlightning {

TL_HOST_DEVICE inline uint32_t Load32(const std::byte* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
TL_HOST_DEVICE inline uint16_t Load16(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// At most five bytes; nullptr when they run out or say more than 32 bits.
TL_HOST_DEVICE inline const std::byte* ReadVarint(const std::byte* at,
                                                  const std::byte* end,
                                                  uint32_t* value) {
  uint64_t sum = 0;
  for (uint32_t shift = 0; shift < 35 && at != end; shift += 7) {
    const auto byte = static_cast<uint8_t>(*at++);
    sum |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) {
      *value = static_cast<uint32_t>(sum);
      return sum <= UINT32_MAX ? at : nullptr;
    }
  }
  return nullptr;
}

// The parts of one group's body. Trusts nothing but the span it is given.
struct Group {
  uint32_t entries = 0;
  uint32_t count = 0;  // 0: the group is empty and the rest is unset.
  uint32_t mask = 0;
  const std::byte* scales = nullptr;
  const std::byte* values = nullptr;
  const std::byte* index = nullptr;
  const std::byte* end = nullptr;  // Of the body.
};

// Splits off the group at `at`. nullptr when the lengths don't add up.
TL_HOST_DEVICE inline const std::byte* ReadGroup(const std::byte* at,
                                                 const std::byte* end,
                                                 uint32_t entries,
                                                 ValueCode code, Group* group) {
  group->entries = entries;
  group->count = 0;
  uint32_t bytes = 0;
  at = ReadVarint(at, end, &bytes);
  if (at == nullptr || bytes > static_cast<size_t>(end - at)) return nullptr;
  if (bytes == 0) return at;
  end = at + bytes;
  uint32_t last = 0;
  at = ReadVarint(at, end, &last);
  if (at == nullptr || last >= entries) return nullptr;
  group->count = last + 1;
  if (HasScale(code)) {
    if (end - at < 2) return nullptr;
    group->mask = Load16(at);
    group->scales = at + 2;
    const auto scale_bytes = 2 * std::popcount(group->mask);
    if (end - group->scales < scale_bytes) return nullptr;
    at = group->scales + scale_bytes;
  }
  const size_t value_bytes = (size_t{group->count} * ValueBits(code) + 7) / 8;
  if (static_cast<size_t>(end - at) < value_bytes) return nullptr;
  group->values = at;
  group->index = at + value_bytes;
  group->end = end;
  return end;
}

// Calls visit(position) for each position of the group, ascending. False when
// the bytes are no valid index; a few calls may have been made by then, never
// one outside the group nor more than group.count of them.
template <bool kChecked, typename Visit>
TL_HOST_DEVICE bool ForEachPosition(const Group& group, Visit visit) {
  BitReader bits(group.index, static_cast<size_t>(group.end - group.index));
  const auto chunks = static_cast<uint32_t>(ChunkCount(group.entries));
  uint32_t left = group.count;
  uint32_t chunk = 0;
  while (left > 0) {
    if (kChecked && (chunk >= chunks || bits.overrun())) return false;
    const auto kind = static_cast<uint8_t>(bits.Read(kKindBits));
    const uint32_t begin = chunk * kChunkEntries;
    const uint32_t span = SpanOf(group.entries, chunk, kChunkEntries);
    if (SpansChunks(kind)) {
      chunk += bits.Read(kChunksBits) + 1;
      if (kChecked && chunk > chunks) return false;
      const uint32_t count = chunk == chunks ? left : bits.Read(kSpanCountBits);
      if (kChecked && count > left) return false;
      const uint32_t end = std::min(chunk * kChunkEntries, group.entries);
      const uint32_t b = RiceOf(kind);
      uint32_t next = begin;
      if (IsRuns(kind)) {
        for (uint32_t seen = 0; seen < count;) {
          const uint32_t first = next + bits.ReadRice(b, kGroupEntries);
          const uint32_t length = bits.ReadGamma();
          // Each of the three is small enough that the sum can't wrap.
          if (kChecked && (length == 0 || length > count - seen ||
                           first >= end || first + length > end)) {
            return false;
          }
          next = first + length;
          for (uint32_t at = first; at < next; ++at) visit(at);
          seen += length;
        }
      } else {
        for (uint32_t i = 0; i < count; ++i) {
          if (i % 4 == 0) bits.Refill();
          const uint32_t at = next + bits.ReadRice(b, kGroupEntries);
          if (kChecked && at >= end) return false;
          visit(at);
          next = at + 1;
        }
      }
      left -= count;
      continue;
    }
    ++chunk;
    if (kind == kAll) {
      if (kChecked && span > left) return false;
      for (uint32_t i = 0; i < span; ++i) visit(begin + i);
      left -= span;
    } else if (kind == kBitmap) {
      for (uint32_t at = 0; at < span; at += 32) {
        uint32_t word = bits.Read(std::min(32u, span - at));
        const auto count = static_cast<uint32_t>(std::popcount(word));
        if (kChecked && count > left) return false;
        left -= count;
        for (; word != 0; word &= word - 1) {
          visit(begin + at + static_cast<uint32_t>(std::countr_zero(word)));
        }
      }
    } else if (kind == kRaw || kind == kPacked) {
      const uint32_t width =
          kind == kRaw ? kPositionBits : bits.Read(kWidthBits);
      const uint32_t count = bits.Read(kChunkCountBits) + 1;
      if (kChecked && count > left) return false;
      uint32_t next = 0;
      for (uint32_t i = 0; i < count; ++i) {
        const uint32_t read = bits.Read(width);
        const uint32_t at = kind == kRaw ? read : next + read;
        if (kChecked && (at >= span || at < next)) return false;
        visit(begin + at);
        next = at + 1;
      }
      left -= count;
    } else {
      return false;
    }
  }
  return !kChecked ||
         (!bits.overrun() && group.index + bits.bytes_read() == group.end);
}

template <ValueCode kCode>
TL_HOST_DEVICE uint32_t SymbolAt(const std::byte* values, uint32_t i) {
  constexpr uint32_t kBits = ValueBits(kCode);
  if constexpr (kBits == 32) {
    return Load32(values + size_t{i} * 4);
  } else if constexpr (kBits == 16) {
    return Load16(values + size_t{i} * 2);
  } else {
    const uint32_t bit = i * kBits;
    return (static_cast<uint32_t>(values[bit >> 3]) >> (bit & 7)) &
           ((1u << kBits) - 1);
  }
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_GROUP_READER_H_
