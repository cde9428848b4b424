#include "kernels/decode.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <string>

#include "kernels/bits.h"
#include "kernels/chunk.h"
#include "kernels/code_format.h"
#include "kernels/finite.h"
#include "kernels/float_mode.h"

namespace tensorlightning {
namespace {

uint32_t Load32(const std::byte* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
uint16_t Load16(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// At most five bytes; nullptr when they run out or say more than 32 bits.
const std::byte* ReadVarint(const std::byte* at, const std::byte* end,
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
const std::byte* ReadGroup(const std::byte* at, const std::byte* end,
                           uint32_t entries, ValueCode code, Group* group) {
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
  const size_t value_bytes =
      (size_t{group->count} * ValueBits(code) + 7) / 8;
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
bool ForEachPosition(const Group& group, Visit visit) {
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
      const uint32_t count =
          chunk == chunks ? left : bits.Read(kSpanCountBits);
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
  return !kChecked || (!bits.overrun() &&
                       group.index + bits.bytes_read() == group.end);
}

template <ValueCode kCode>
uint32_t SymbolAt(const std::byte* values, uint32_t i) {
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

using Steps = std::array<float, kGroupChunks>;

Steps StepsOf(const Group& group) {
  Steps steps{};
  const std::byte* at = group.scales;
  for (uint32_t j = 0; j < kGroupChunks; ++j) {
    if ((group.mask >> j & 1) == 0) continue;
    steps[j] = FromUpperHalf(Load16(at));
    at += 2;
  }
  return steps;
}

// Calls visit(index, value) for each entry of a valid message.
template <ValueCode kCode, typename Visit>
void ForEachEntry(const Message& message, Visit visit) {
  const std::byte* at = message.bytes().data() + kCodeHeaderBytes;
  const std::byte* const end =
      message.bytes().data() + message.bytes().size();
  const size_t groups = GroupCount(message.entries());
  for (size_t g = 0; g < groups; ++g) {
    Group group;
    at = ReadGroup(at, end, SpanOf(message.entries(), g, kGroupEntries), kCode,
                   &group);
    if (group.count == 0) continue;
    Steps steps{};
    if constexpr (HasScale(kCode)) steps = StepsOf(group);
    const size_t base = g * kGroupEntries;
    uint32_t i = 0;
    ForEachPosition<false>(group, [&](uint32_t position) {
      const float value = Dequantise(kCode, SymbolAt<kCode>(group.values, i++),
                                     steps[position >> kChunkShift]);
      visit(base + position, value);
    });
  }
}

template <typename Visit>
void VisitEntries(const Message& message, Visit visit) {
  switch (message.value_code()) {
    case ValueCode::kFloat32:
      return ForEachEntry<ValueCode::kFloat32>(message, visit);
    case ValueCode::kBfloat16:
      return ForEachEntry<ValueCode::kBfloat16>(message, visit);
    case ValueCode::kBits8:
      return ForEachEntry<ValueCode::kBits8>(message, visit);
    case ValueCode::kBits4:
      return ForEachEntry<ValueCode::kBits4>(message, visit);
    case ValueCode::kBits2:
      return ForEachEntry<ValueCode::kBits2>(message, visit);
  }
}

// Visits entries a little after they are decoded, and says beforehand which:
// entries lie far apart, and memory is slow to be surprised.
template <typename Expect, typename Visit>
void VisitAhead(const Message& message, Expect expect, Visit visit) {
  constexpr uint32_t kAhead = 64;
  std::array<uint32_t, kAhead> indices;
  std::array<float, kAhead> values;
  uint32_t waiting = 0;
  const auto flush = [&] {
    for (uint32_t i = 0; i < waiting; ++i) visit(indices[i], values[i]);
    waiting = 0;
  };
  VisitEntries(message, [&](size_t index, float value) {
    indices[waiting] = static_cast<uint32_t>(index);
    values[waiting] = value;
    expect(indices[waiting]);
    if (++waiting == kAhead) flush();
  });
  flush();
}

// Whether the group's positions are valid and its scales fit to them.
bool IsValid(const Group& group, ValueCode code) {
  uint32_t seen = 0;
  if (!ForEachPosition<true>(group, [&](uint32_t position) {
        seen |= 1u << (position >> kChunkShift);
      })) {
    return false;
  }
  if (!HasScale(code)) return true;
  const int scales = std::popcount(group.mask);
  for (int i = 0; i < scales; ++i) {
    const uint32_t scale = Load16(group.scales + 2 * i);
    if (scale == 0 || scale > 0x7fffu) return false;  // Steps are positive.
  }
  return seen == group.mask;
}

// Whether some value of the group might not be finite.
bool MayOverflow(const Group& group, ValueCode code) {
  if (HasScale(code)) {
    const auto levels = static_cast<float>(LevelsOf(code));
    const int scales = std::popcount(group.mask);
    for (int i = 0; i < scales; ++i) {
      const float step = FromUpperHalf(Load16(group.scales + 2 * i));
      if (MagnitudeBits(levels * step) >= kInfinityBits) return true;
    }
    return false;
  }
  const uint32_t stride = ValueBits(code) / 8;
  for (uint32_t i = 0; i < group.count; ++i) {
    const std::byte* at = group.values + size_t{i} * stride;
    const uint32_t bits = stride == 4 ? Load32(at) : uint32_t{Load16(at)} << 16;
    if ((bits & kInfinityBits) == kInfinityBits) return true;
  }
  return false;
}

Error Corrupt(const std::string& what) {
  return {ErrorCode::kCorrupt, "not a valid sparse code: " + what};
}

}  // namespace

Result<Message> Message::Parse(std::span<const std::byte> bytes,
                               size_t entries) {
  if (bytes.size() < kCodeHeaderBytes) {
    return Corrupt(std::to_string(bytes.size()) + " bytes are no header");
  }
  if (Load32(bytes.data()) != kCodeMagic) {
    return Corrupt("it does not begin with TLC1");
  }
  const uint32_t code_word = Load32(bytes.data() + 4);
  if (code_word >= kValueCodes) {
    return Corrupt("unknown value code " + std::to_string(code_word));
  }
  const auto code = static_cast<ValueCode>(code_word);
  if (Load32(bytes.data() + 8) != entries) {
    return Corrupt("it is for " + std::to_string(Load32(bytes.data() + 8)) +
                   " entries, not " + std::to_string(entries));
  }
  const uint32_t kept = Load32(bytes.data() + 12);

  const std::byte* at = bytes.data() + kCodeHeaderBytes;
  const std::byte* const end = bytes.data() + bytes.size();
  uint64_t seen = 0;
  bool suspicious = false;
  const size_t groups = GroupCount(entries);
  for (size_t g = 0; g < groups; ++g) {
    Group group;
    at = ReadGroup(at, end, SpanOf(entries, g, kGroupEntries), code, &group);
    if (at == nullptr || (group.count > 0 && !IsValid(group, code))) {
      return Corrupt("group " + std::to_string(g) + " of " +
                     std::to_string(groups) + " is damaged");
    }
    suspicious |= group.count > 0 && MayOverflow(group, code);
    seen += group.count;
  }
  if (at != end) {
    return Corrupt(std::to_string(end - at) + " bytes too many");
  }
  if (seen != kept) {
    return Corrupt("its header says " + std::to_string(kept) +
                   " entries are kept, its groups " + std::to_string(seen));
  }
  const Message message(bytes, entries, kept, code);
  if (suspicious) {
    size_t count = 0;
    size_t first = 0;
    VisitEntries(message, [&](size_t index, float value) {
      if (MagnitudeBits(value) < kInfinityBits) return;
      if (count++ == 0) first = index;
    });
    if (count > 0) return NotFiniteError("the code", count, first);
  }
  return message;
}

void DecodeAdd(const Message& message, std::span<float> y, float scale) {
  assert(y.size() == message.entries());
  const ScopedFloatMode mode;
  float* const out = y.data();
  if (scale == 1.0f) {
    VisitAhead(
        message, [out](uint32_t index) { __builtin_prefetch(out + index, 1); },
        [out](uint32_t index, float value) { out[index] += value; });
  } else {
    VisitAhead(
        message, [out](uint32_t index) { __builtin_prefetch(out + index, 1); },
        [out, scale](uint32_t index, float value) {
          out[index] += scale * value;
        });
  }
}

void DecodeAddBoth(const Message& message, std::span<float> a,
                   std::span<float> b) {
  assert(a.size() == message.entries() && b.size() == message.entries());
  const ScopedFloatMode mode;
  float* const first = a.data();
  float* const second = b.data();
  VisitAhead(
      message,
      [first, second](uint32_t index) {
        __builtin_prefetch(first + index, 1);
        __builtin_prefetch(second + index, 1);
      },
      [first, second](uint32_t index, float value) {
        first[index] += value;
        second[index] += value;
      });
}

void DecodeEntries(const Message& message, std::span<uint32_t> indices,
                   std::span<float> values) {
  assert(indices.size() >= message.kept() && values.size() >= message.kept());
  uint32_t* index_out = indices.data();
  float* value_out = values.data();
  VisitEntries(message, [&](size_t index, float value) {
    *index_out++ = static_cast<uint32_t>(index);
    *value_out++ = value;
  });
}

}  // namespace tensorlightning
