#include "kernels/select.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "kernels/chunk.h"
#include "kernels/cpu/vector_ops.h"
#include "kernels/finite.h"
#include "kernels/float_mode.h"

namespace tensorlightning {
namespace {

// Wide collecting goes block by block, to see in time when room runs out.
constexpr size_t kBlockEntries = 65536;

// Radix select over 31-bit magnitudes: the upper 16 bits, then the lower 15.
constexpr uint32_t kLowBits = 15;
constexpr size_t kBins = size_t{1} << 16;

struct Bin {
  size_t bin;
  size_t above;  // How many lie in higher bins.
};

// The bin in which the k-th largest lies.
Bin FindBin(std::span<const uint32_t> bins, size_t k) {
  size_t above = 0;
  size_t bin = bins.size() - 1;
  while (above + bins[bin] < k) above += bins[bin--];
  return {bin, above};
}

template <typename MagnitudeAt>
Cut RadixCut(size_t n, size_t k, MagnitudeAt magnitude_at,
             std::vector<uint32_t>& bins) {
  bins.assign(kBins, 0);
  for (size_t i = 0; i < n; ++i) bins[magnitude_at(i) >> kLowBits]++;
  const Bin high = FindBin(bins, k);

  bins.assign(size_t{1} << kLowBits, 0);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t magnitude = magnitude_at(i);
    if (magnitude >> kLowBits == high.bin) {
      bins[magnitude & ((1u << kLowBits) - 1)]++;
    }
  }
  const Bin low = FindBin(bins, k - high.above);
  return {static_cast<uint32_t>(high.bin << kLowBits | low.bin),
          k - high.above - low.above};
}

// Gathers into the workspace the entries from a sampled floor on, a little
// more than k of them if the sample is worth anything. Their number, or 0 when
// they turned out fewer than k or too many for the room.
size_t CollectCandidates(std::span<const float> values, size_t k,
                         Workspace& workspace) {
  const size_t n = values.size();
  if (n < 4 * kSamples) return 0;
  // Four standard deviations more than the sample's share of k.
  const double expected = static_cast<double>(k) / static_cast<double>(n) *
                          static_cast<double>(kSamples);
  const double rank = expected + 4 * std::sqrt(expected) + 8;
  const double density = rank / static_cast<double>(kSamples);
  if (density > 0.5) return 0;
  const uint32_t floor = SampleFloor(
      n, density, 0, [&](size_t i) { return values[i]; }, workspace);

  const size_t room =
      static_cast<size_t>(1.25 * density * static_cast<double>(n)) +
      2 * kBlockEntries;
  if (workspace.indices.size() < room + cpu::kVectorSlack) {
    workspace.indices.resize(room + cpu::kVectorSlack);
    workspace.candidates.resize(room + cpu::kVectorSlack);
  }
  size_t count = 0;
  for (size_t i = 0; i < n; i += kBlockEntries) {
    if (room - count < kBlockEntries) return 0;
    count += cpu::Ops().collect_wide(&values[i], std::min(kBlockEntries, n - i),
                                     floor, static_cast<uint32_t>(i),
                                     &workspace.indices[count],
                                     &workspace.candidates[count]);
  }
  return count < k ? 0 : count;
}

Cut CutOf(size_t candidates, size_t k, Workspace& workspace) {
  const uint32_t* const magnitudes = workspace.candidates.data();
  return RadixCut(
      candidates, k, [=](size_t i) { return magnitudes[i]; },
      workspace.radix_bins);
}

Cut CutOf(std::span<const float> values, size_t k, Workspace& workspace) {
  return RadixCut(
      values.size(), k, [&](size_t i) { return MagnitudeBits(values[i]); },
      workspace.radix_bins);
}

// All candidates, cut down, as indices in workspace.indices.
size_t FilterCandidates(size_t candidates, Cut cut, Workspace& workspace) {
  size_t kept = 0;
  for (size_t i = 0; i < candidates; ++i) {
    const uint32_t magnitude = workspace.candidates[i];
    workspace.indices[kept] = workspace.indices[i];
    if (magnitude > cut.magnitude) {
      kept++;
    } else if (magnitude == cut.magnitude && cut.ties > 0) {
      cut.ties--;
      kept++;
    }
  }
  return kept;
}

size_t SelectGlobal(std::span<const float> values, size_t k,
                    Workspace& workspace) {
  size_t candidates = CollectCandidates(values, k, workspace);
  Cut cut{};
  if (candidates > 0) {
    cut = CutOf(candidates, k, workspace);
  } else {
    cut = CutOf(values, k, workspace);
    const size_t room = values.size() + cpu::kVectorSlack;
    workspace.indices.resize(std::max(workspace.indices.size(), room));
    workspace.candidates.resize(std::max(workspace.candidates.size(), room));
    candidates = cpu::Ops().collect_wide(
        values.data(), values.size(), cut.magnitude, 0,
        workspace.indices.data(), workspace.candidates.data());
  }
  return FilterCandidates(candidates, cut, workspace);
}

// A floor that at least k of the values reach, from their exponents alone.
uint32_t ExponentFloor(const float* values, uint32_t n, uint32_t k) {
  // Four tables, so that equal exponents in a row don't wait for each other.
  std::array<std::array<uint16_t, 256>, 4> counts{};
  for (uint32_t i = 0; i < n; ++i) {
    counts[i & 3][MagnitudeBits(values[i]) >> 23]++;
  }
  uint32_t above = 0;
  uint32_t exponent = 255;
  for (;; --exponent) {
    for (const auto& table : counts) above += table[exponent];
    if (above >= k || exponent == 0) break;
  }
  return exponent << 23;
}

}  // namespace

size_t KeptOf(double density, size_t n) {
  const double kept = std::ceil(density * static_cast<double>(n));
  return std::min(n, static_cast<size_t>(kept));
}

uint32_t ThresholdFloor(double threshold) {
  const auto nearest = static_cast<float>(threshold);
  return MagnitudeBits(nearest) + (nearest < threshold ? 1 : 0);
}

Status SelectionRule::Check() const {
  if (kind == Kind::kThreshold) {
    if (std::isfinite(amount) && amount >= 0) return Done{};
    return Error{ErrorCode::kInvalidArgument,
                 "a threshold must be finite and not negative, not " +
                     std::to_string(amount)};
  }
  if (amount > 0 && amount <= 1) return Done{};
  return Error{
      ErrorCode::kInvalidArgument,
      "a density must be above 0 and at most 1, not " + std::to_string(amount)};
}

size_t SelectionRule::MaxKept(size_t n) const {
  switch (kind) {
    case Kind::kChunkTopK: {
      const size_t whole = n / kChunkEntries;
      return whole * KeptOf(amount, kChunkEntries) +
             KeptOf(amount, n % kChunkEntries);
    }
    case Kind::kGlobalTopK:
      return KeptOf(amount, n);
    case Kind::kThreshold:
    case Kind::kSampledThreshold:
      return n;
  }
  return n;
}

Cut FindGlobalCut(std::span<const float> values, size_t k,
                  Workspace& workspace) {
  const size_t candidates = CollectCandidates(values, k, workspace);
  return candidates > 0 ? CutOf(candidates, k, workspace)
                        : CutOf(values, k, workspace);
}

uint32_t ChunkTopK::Narrow(const float* values, uint32_t n, uint16_t base,
                           uint16_t* positions, uint32_t count) {
  const auto k = static_cast<uint32_t>(KeptOf(density_, n));
  // Sorting a few times k is quick; beyond that a better floor pays.
  const bool missed = count < k || count > 4 * k + 512;
  if (missed) {
    margin_ = std::min(0.3f, margin_ * 1.3f);
    count = cpu::Ops().collect(values, n, ExponentFloor(values, n, k), base,
                               positions);
  } else if (count > 2 * k) {
    margin_ *= 0.99f;
  }
  if (count == k) return k;
  uint32_t smallest = UINT32_MAX;
  uint32_t largest = 0;
  uint32_t* const magnitudes = workspace_.magnitudes.data();
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t magnitude =
        MagnitudeBits(values[static_cast<uint16_t>(positions[i] - base)]);
    magnitudes[i] = magnitude;
    smallest = std::min(smallest, magnitude);
    largest = std::max(largest, magnitude);
  }
  const cpu::Isolated isolated =
      cpu::Ops().isolate(magnitudes, count, k, smallest, largest + 1);
  const auto cut = std::bit_cast<float>(isolated.floor);
  usual_cut_ = missed ? cut : usual_cut_ + (cut - usual_cut_) * 0.125f;
  floor_ = std::bit_cast<uint32_t>(usual_cut_ * (1.0f - margin_));

  uint32_t kept = 0;
  if (isolated.reaching == k) {
    for (uint32_t i = 0; i < count; ++i) {
      positions[kept] = positions[i];
      kept += magnitudes[i] >= isolated.floor;
    }
    return kept;
  }
  // Of those that equal the floor, the last ones are too many.
  uint32_t ties = k;
  for (uint32_t i = 0; i < count; ++i) ties -= magnitudes[i] > isolated.floor;
  for (uint32_t i = 0; i < count; ++i) {
    const bool tie = magnitudes[i] == isolated.floor && ties > 0;
    positions[kept] = positions[i];
    ties -= tie;
    kept += magnitudes[i] > isolated.floor || tie;
  }
  return kept;
}

uint32_t ApplyCut(Cut& cut, const float* values, uint16_t base,
                  uint16_t* positions, uint32_t count) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint16_t position = positions[i];
    const uint32_t magnitude =
        MagnitudeBits(values[static_cast<uint16_t>(position - base)]);
    const bool tie = magnitude == cut.magnitude && cut.ties > 0;
    positions[kept] = position;
    cut.ties -= tie;
    kept += magnitude > cut.magnitude || tie;
  }
  return kept;
}

Result<std::span<const uint32_t>> Select(std::span<const float> values,
                                         const SelectionRule& rule,
                                         Workspace& workspace) {
  if (const Status status = rule.Check(); !status.ok()) return status.error();
  if (const Status status = CheckFinite(values, "the input"); !status.ok()) {
    return status.error();
  }
  const ScopedFloatMode mode;
  const size_t n = values.size();
  if (n == 0) return std::span<const uint32_t>();
  size_t kept = 0;
  if (rule.kind == SelectionRule::Kind::kGlobalTopK) {
    kept = SelectGlobal(values, KeptOf(rule.amount, n), workspace);
    return std::span<const uint32_t>(workspace.indices).first(kept);
  }

  const size_t room = rule.MaxKept(n) + kChunkEntries + cpu::kVectorSlack;
  workspace.indices.resize(std::max(workspace.indices.size(), room));
  if (rule.kind == SelectionRule::Kind::kChunkTopK) {
    ChunkTopK top(rule.amount, workspace);
    uint16_t* const positions = workspace.group->positions.data();
    for (size_t begin = 0; begin < n; begin += kChunkEntries) {
      const auto entries =
          static_cast<uint32_t>(std::min<size_t>(kChunkEntries, n - begin));
      const float* const chunk = &values[begin];
      uint32_t count =
          cpu::Ops().collect(chunk, entries, top.floor(), 0, positions);
      count = top.Narrow(chunk, entries, 0, positions, count);
      for (uint32_t i = 0; i < count; ++i) {
        workspace.indices[kept++] = static_cast<uint32_t>(begin) + positions[i];
      }
    }
  } else {
    const uint32_t floor =
        rule.kind == SelectionRule::Kind::kThreshold
            ? ThresholdFloor(rule.amount)
            : SampleFloor(
                  n, rule.amount, rule.seed,
                  [&](size_t i) { return values[i]; }, workspace);
    workspace.candidates.resize(std::max(workspace.candidates.size(), room));
    kept = cpu::Ops().collect_wide(values.data(), n, floor, 0,
                                   workspace.indices.data(),
                                   workspace.candidates.data());
  }
  return std::span<const uint32_t>(workspace.indices).first(kept);
}

}  // namespace tensorlightning
