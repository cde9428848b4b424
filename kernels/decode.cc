#include "kernels/decode.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/chunk.h"
#include "kernels/code_format.h"
#include "kernels/finite.h"
#include "kernels/float_mode.h"
#include "kernels/group_reader.h"

namespace tensorlightning {
namespace {

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

// Calls visit(index, value) for each entry of a valid message, and some time
// before that expect(index): entries lie far apart, and memory is slow to be
// surprised. Everything is inlined; a call per entry would cost as much as the
// rest.
template <ValueCode kCode, typename Expect, typename Visit>
void ForEachEntry(const Message& message, Expect expect, Visit visit) {
  const std::byte* at = message.bytes().data() + kCodeHeaderBytes;
  const std::byte* const end = message.bytes().data() + message.bytes().size();
  const size_t groups = GroupCount(message.entries());
  for (size_t g = 0; g < groups; ++g) {
    Group group;
    at = ReadGroup(at, end, SpanOf(message.entries(), g, kGroupEntries), kCode,
                   &group);
    if (group.count == 0) continue;
    Steps steps{};
    if constexpr (HasScale(kCode)) steps = StepsOf(group);
    const size_t base = g * kGroupEntries;

    constexpr uint32_t kAhead = 64;
    std::array<uint32_t, kAhead> positions;
    uint32_t waiting = 0;
    uint32_t visited = 0;
    const auto flush = [&]() __attribute__((always_inline)) {
      std::array<float, kAhead> values;
      for (uint32_t i = 0; i < waiting; ++i) {
        values[i] =
            Dequantise(kCode, SymbolAt<kCode>(group.values, visited + i),
                       steps[positions[i] >> kChunkShift]);
      }
      for (uint32_t i = 0; i < waiting; ++i) {
        visit(base + positions[i], values[i]);
      }
      visited += waiting;
      waiting = 0;
    };
    ForEachPosition<false>(
        group, [&](uint32_t position) __attribute__((always_inline)) {
          positions[waiting] = position;
          expect(base + position);
          if (++waiting == kAhead) flush();
        });
    flush();
  }
}

template <typename Expect, typename Visit>
void VisitEntries(const Message& message, Expect expect, Visit visit) {
  switch (message.value_code()) {
    case ValueCode::kFloat32:
      return ForEachEntry<ValueCode::kFloat32>(message, expect, visit);
    case ValueCode::kBfloat16:
      return ForEachEntry<ValueCode::kBfloat16>(message, expect, visit);
    case ValueCode::kBits8:
      return ForEachEntry<ValueCode::kBits8>(message, expect, visit);
    case ValueCode::kBits4:
      return ForEachEntry<ValueCode::kBits4>(message, expect, visit);
    case ValueCode::kBits2:
      return ForEachEntry<ValueCode::kBits2>(message, expect, visit);
  }
}

template <typename Visit>
void VisitEntries(const Message& message, Visit visit) {
  VisitEntries(
      message, [](size_t) {}, visit);
}

// Whether the group's positions are valid and its scales fit to them.
bool IsValid(const Group& group, ValueCode code) {
  uint32_t seen = 0;
  if (!ForEachPosition<true>(
          group, [&](uint32_t position) __attribute__((always_inline)) {
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

// Whether some value of the group may be 2^100 or more, Inf or NaN.
bool MayBeHuge(const Group& group, ValueCode code) {
  if (HasScale(code)) {
    const auto levels = static_cast<float>(LevelsOf(code));
    const int scales = std::popcount(group.mask);
    for (int i = 0; i < scales; ++i) {
      const float step = FromUpperHalf(Load16(group.scales + 2 * i));
      if (MagnitudeBits(levels * step) >= kUsableBits) return true;
    }
    return false;
  }
  const uint32_t stride = ValueBits(code) / 8;
  for (uint32_t i = 0; i < group.count; ++i) {
    const std::byte* at = group.values + size_t{i} * stride;
    const uint32_t bits = stride == 4 ? Load32(at) : uint32_t{Load16(at)} << 16;
    if ((bits & kMagnitudeMask) >= kUsableBits) return true;
  }
  return false;
}

// A caller's mistake that must not become a write to somebody else's memory.
void RequireSize(bool fits) {
  if (fits) return;
  std::fputs(
      "tensorlightning: a message was decoded into vectors of another "
      "size\n",
      stderr);
  std::abort();
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
  bool huge = false;
  const size_t groups = GroupCount(entries);
  for (size_t g = 0; g < groups; ++g) {
    Group group;
    at = ReadGroup(at, end, SpanOf(entries, g, kGroupEntries), code, &group);
    if (at == nullptr || (group.count > 0 && !IsValid(group, code))) {
      return Corrupt("group " + std::to_string(g) + " of " +
                     std::to_string(groups) + " is damaged");
    }
    huge |= group.count > 0 && MayBeHuge(group, code);
    seen += group.count;
  }
  if (at != end) {
    return Corrupt(std::to_string(end - at) + " bytes too many");
  }
  if (seen != kept) {
    return Corrupt("its header says " + std::to_string(kept) +
                   " entries are kept, its groups " + std::to_string(seen));
  }
  const Message message(bytes, entries, kept, code, huge);
  if (huge) {
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
  RequireSize(y.size() == message.entries());
  const ScopedFloatMode mode;
  float* const out = y.data();
  if (scale == 1.0f) {
    VisitEntries(
        message, [out](size_t index) { __builtin_prefetch(out + index, 1); },
        [out](size_t index, float value) { out[index] += value; });
  } else {
    VisitEntries(
        message, [out](size_t index) { __builtin_prefetch(out + index, 1); },
        [out, scale](size_t index, float value) {
          out[index] += scale * value;
        });
  }
}

void DecodeAddBoth(const Message& message, std::span<float> a,
                   std::span<float> b) {
  RequireSize(a.size() == message.entries() && b.size() == message.entries());
  const ScopedFloatMode mode;
  float* const first = a.data();
  float* const second = b.data();
  VisitEntries(
      message,
      [first, second](size_t index) {
        __builtin_prefetch(first + index, 1);
        __builtin_prefetch(second + index, 1);
      },
      [first, second](size_t index, float value) {
        first[index] += value;
        second[index] += value;
      });
}

void DecodeEntries(const Message& message, std::span<uint32_t> indices,
                   std::span<float> values) {
  RequireSize(indices.size() >= message.kept() &&
              values.size() >= message.kept());
  uint32_t* index_out = indices.data();
  float* value_out = values.data();
  VisitEntries(message, [&](size_t index, float value) {
    *index_out++ = static_cast<uint32_t>(index);
    *value_out++ = value;
  });
}

}  // namespace tensorlightning
