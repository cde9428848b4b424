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

void ReserveIndices(size_t room, Workspace& workspace) {
  if (workspace.indices.size() >= room) return;
  workspace.indices.resize(room);
  workspace.candidates.resize(room);
}

// Entries of the workspace that may be among the k largest.
struct Candidates {
  size_t count = 0;      // 0: the sample did not help.
  uint32_t certain = 0;  // From this magnitude on, they are, most likely.
};

// Gathers into the workspace the entries from a sampled floor on, a little
// more than k of them if the sample is worth anything; none when they turned
// out fewer than k or too many for the room.
Candidates CollectCandidates(std::span<const float> values, size_t k,
                             Workspace& workspace) {
  const size_t n = values.size();
  if (n < 4 * kSamples) return {};
  // Four standard deviations more, or less, than the sample's share of k.
  const double expected = static_cast<double>(k) / static_cast<double>(n) *
                          static_cast<double>(kSamples);
  const double margin = 4 * std::sqrt(expected) + 8;
  const double density = (expected + margin) / static_cast<double>(kSamples);
  if (density > 0.5) return {};
  const uint32_t floor = SampleFloor(
      n, density, 0, [&](size_t i) { return values[i]; }, workspace);
  Candidates candidates{0, kMagnitudeMask};
  if (expected > margin + 1) {
    // The samples are in order about the floor's rank: look among the larger.
    uint32_t* const samples = workspace.samples.data();
    uint32_t* const rank = samples + static_cast<size_t>(expected - margin);
    std::nth_element(samples, rank, samples + KeptOf(density, kSamples),
                     std::greater<>());
    candidates.certain = *rank;
  }

  const size_t room =
      static_cast<size_t>(1.25 * density * static_cast<double>(n)) +
      2 * kBlockEntries;
  ReserveIndices(room + cpu::kVectorSlack, workspace);
  size_t count = 0;
  for (size_t i = 0; i < n; i += kBlockEntries) {
    if (room - count < kBlockEntries) return {};
    count += cpu::Ops().collect_wide(&values[i], std::min(kBlockEntries, n - i),
                                     floor, static_cast<uint32_t>(i),
                                     &workspace.indices[count],
                                     &workspace.candidates[count]);
  }
  if (count >= k) candidates.count = count;
  return candidates;
}

// The exact cut, for which only the uncertain ones need be looked at closely.
Cut CutOf(const Candidates& candidates, size_t k, Workspace& workspace) {
  // As long as the candidates may ever be, so that it grows but once.
  if (workspace.uncertain.size() < workspace.candidates.size()) {
    workspace.uncertain.resize(workspace.candidates.size());
  }
  const uint32_t* const magnitudes = workspace.candidates.data();
  uint32_t* const uncertain = workspace.uncertain.data();
  size_t count = 0;
  for (size_t i = 0; i < candidates.count; ++i) {
    uncertain[count] = magnitudes[i];
    count += magnitudes[i] < candidates.certain;
  }
  const size_t certain = candidates.count - count;
  if (certain < k) {
    return RadixCut(
        count, k - certain, [=](size_t i) { return uncertain[i]; },
        workspace.radix_bins);
  }
  return RadixCut(
      candidates.count, k, [=](size_t i) { return magnitudes[i]; },
      workspace.radix_bins);
}

Cut CutOf(std::span<const float> values, size_t k, Workspace& workspace) {
  return RadixCut(
      values.size(), k, [&](size_t i) { return MagnitudeBits(values[i]); },
      workspace.radix_bins);
}

// How many indices were written to the workspace, and the largest magnitude
// among them. NaN and Inf are larger than all else, so that every rule selects
// some of them if there are any: the largest tells whether all is finite.
struct Selected {
  size_t count = 0;
  uint32_t largest = 0;
};

// The candidates in the workspace, cut down.
Selected FilterCandidates(size_t candidates, Cut cut, Workspace& workspace) {
  Selected selected;
  for (size_t i = 0; i < candidates; ++i) {
    const uint32_t magnitude = workspace.candidates[i];
    const bool tie = magnitude == cut.magnitude && cut.ties > 0;
    workspace.indices[selected.count] = workspace.indices[i];
    cut.ties -= tie;
    selected.count += magnitude > cut.magnitude || tie;
    selected.largest = std::max(selected.largest, magnitude);
  }
  return selected;
}

Selected SelectGlobal(std::span<const float> values, size_t k,
                      Workspace& workspace) {
  Candidates candidates = CollectCandidates(values, k, workspace);
  Cut cut{};
  if (candidates.count > 0) {
    cut = CutOf(candidates, k, workspace);
  } else {
    cut = CutOf(values, k, workspace);
    ReserveIndices(values.size() + cpu::kVectorSlack, workspace);
    candidates.count = cpu::Ops().collect_wide(
        values.data(), values.size(), cut.magnitude, 0,
        workspace.indices.data(), workspace.candidates.data());
  }
  return FilterCandidates(candidates.count, cut, workspace);
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

Selected SelectByChunk(std::span<const float> values, double density,
                       Workspace& workspace) {
  const size_t n = values.size();
  ReserveIndices(SelectionRule::ChunkTopK(density).MaxKept(n), workspace);
  ChunkTopK top(density, workspace);
  uint16_t* const positions = workspace.group->positions.data();
  Selected selected;
  for (size_t begin = 0; begin < n; begin += kChunkEntries) {
    const auto entries =
        static_cast<uint32_t>(std::min<size_t>(kChunkEntries, n - begin));
    const float* const chunk = &values[begin];
    uint32_t count =
        cpu::Ops().collect(chunk, entries, top.floor(), 0, positions);
    count = top.Narrow(chunk, entries, 0, positions, count);
    for (uint32_t i = 0; i < count; ++i) {
      workspace.indices[selected.count++] =
          static_cast<uint32_t>(begin) + positions[i];
      selected.largest =
          std::max(selected.largest, MagnitudeBits(chunk[positions[i]]));
    }
  }
  return selected;
}

Selected SelectReaching(uint32_t floor, std::span<const float> values,
                        Workspace& workspace) {
  ReserveIndices(values.size() + cpu::kVectorSlack, workspace);
  const size_t count = cpu::Ops().collect_wide(
      values.data(), values.size(), floor, 0, workspace.indices.data(),
      workspace.candidates.data());
  return FilterCandidates(count, {0, UINT64_MAX}, workspace);
}

}  // namespace

size_t KeptOf(double density, size_t n) {
  if (n == 0) return 0;
  // 0.07 * 100 is a little more than 7 in binary, and means 7.
  constexpr double kRounding = 1 - 1e-12;
  const double kept = std::ceil(density * static_cast<double>(n) * kRounding);
  return std::clamp(static_cast<size_t>(kept), size_t{1}, n);
}

uint32_t ThresholdFloor(double threshold) {
  const auto nearest = static_cast<float>(threshold);
  return MagnitudeBits(nearest) + (nearest < threshold ? 1 : 0);
}

Status SelectionRule::Check() const {
  if (kind > Kind::kSampledThreshold) {
    return Error{
        ErrorCode::kInvalidArgument,
        "there is no selection rule " + std::to_string(static_cast<int>(kind))};
  }
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
  const Candidates candidates = CollectCandidates(values, k, workspace);
  return candidates.count > 0 ? CutOf(candidates, k, workspace)
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
  const ScopedFloatMode mode;
  if (values.empty()) return std::span<const uint32_t>();
  Selected selected;
  switch (rule.kind) {
    case SelectionRule::Kind::kGlobalTopK:
      selected =
          SelectGlobal(values, KeptOf(rule.amount, values.size()), workspace);
      break;
    case SelectionRule::Kind::kChunkTopK:
      selected = SelectByChunk(values, rule.amount, workspace);
      break;
    case SelectionRule::Kind::kThreshold:
      selected = SelectReaching(ThresholdFloor(rule.amount), values, workspace);
      break;
    case SelectionRule::Kind::kSampledThreshold: {
      const uint32_t floor = SampleFloor(
          values.size(), rule.amount, rule.seed,
          [&](size_t i) { return values[i]; }, workspace);
      selected = SelectReaching(floor, values, workspace);
      break;
    }
  }
  if (selected.largest >= kInfinityBits) {
    return CheckFinite(values, "the input").error();
  }
  return std::span<const uint32_t>(workspace.indices).first(selected.count);
}

}  // namespace tensorlightning
