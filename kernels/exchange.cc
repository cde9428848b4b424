#include "kernels/exchange.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/chunk.h"
#include "kernels/cpu/vector_ops.h"
#include "kernels/encode.h"
#include "kernels/finite.h"
#include "kernels/float_mode.h"

namespace tensorlightning {
namespace {

// A floor that nothing reaches.
constexpr uint32_t kNothing = UINT32_MAX >> 1;

// A source is where the values come from and what sending one changes:
//   Prepare(begin, n, floor, ...)  brings chunk [begin, begin + n) up to date
//                                  and collects what reaches the floor
//   Values(begin)                  the chunk's values, once prepared
//   Expect(begin)                  that chunk comes next: fetch a little of it
//   Peek(i)                        entry i as Prepare() will make it
//   Sent(i, q)                     books that q of entry i is on its way
//   Finish(begin, n)               after the last Sent() of a chunk
//   Diagnose()                     names the vector that holds NaN or Inf
// workspace's dense buffer has been sized for all.

// While a chunk's few kept entries are dealt with, memory would be idle.
// Fetches the first `kLines` cache lines from `from` on: as many as can be
// under way.
template <int kLines>
void Fetch(const float* from) {
  constexpr int kLineFloats = 16;
  for (int line = 0; line < kLines; ++line) {
    __builtin_prefetch(from + line * kLineFloats);
  }
}

struct WorkerSource {
  float* x;
  float* c;
  float* r;
  Coefficients by;

  uint32_t Prepare(size_t begin, uint32_t n, uint32_t floor, uint16_t base,
                   uint16_t* positions) const {
    return cpu::Ops().pull_and_book(x + begin, c + begin, r + begin, n, by.pull,
                                    by.push, floor, base, positions);
  }
  void Expect(size_t begin) const {
    Fetch<8>(x + begin);
    Fetch<8>(c + begin);
    Fetch<8>(r + begin);
  }
  const float* Values(size_t begin) const { return r + begin; }
  float Peek(size_t i) const { return r[i] + by.push * (x[i] - c[i]); }
  void Sent(size_t i, float q) const {
    r[i] -= q;
    c[i] += q;
  }
  void Finish(size_t begin, uint32_t n) const {
    if (by.pull == 1.0f) std::copy_n(c + begin, n, x + begin);
  }
  Status Diagnose(size_t n) const {
    const Status view = CheckFinite({c, n}, "the view");
    return view.ok() ? CheckFinite({r, n}, "the residual") : view;
  }
};

struct ReplySource {
  const float* centre;
  float* view;
  float* difference;  // One chunk, or all when `stride` is 1.
  size_t stride = 0;

  uint32_t Prepare(size_t begin, uint32_t n, uint32_t floor, uint16_t base,
                   uint16_t* positions) const {
    return cpu::Ops().subtract(centre + begin, view + begin,
                               difference + begin * stride, n, floor, base,
                               positions);
  }
  void Expect(size_t begin) const {
    Fetch<12>(centre + begin);
    Fetch<12>(view + begin);
  }
  const float* Values(size_t begin) const {
    return difference + begin * stride;
  }
  float Peek(size_t i) const { return centre[i] - view[i]; }
  void Sent(size_t i, float q) const { view[i] += q; }
  void Finish(size_t, uint32_t) const {}
  Status Diagnose(size_t n) const {
    const Status state = CheckFinite({centre, n}, "the centre", kUsableBits);
    return state.ok() ? CheckFinite({view, n}, "the view", kUsableBits) : state;
  }
};

struct ResidualSource {
  float* r;
  const float* g;  // May be null.

  uint32_t Prepare(size_t begin, uint32_t n, uint32_t floor, uint16_t base,
                   uint16_t* positions) const {
    return g == nullptr
               ? cpu::Ops().collect(r + begin, n, floor, base, positions)
               : cpu::Ops().accumulate(r + begin, g + begin, n, floor, base,
                                       positions);
  }
  void Expect(size_t begin) const {
    Fetch<12>(r + begin);
    if (g != nullptr) Fetch<12>(g + begin);
  }
  const float* Values(size_t begin) const { return r + begin; }
  float Peek(size_t i) const { return g == nullptr ? r[i] : r[i] + g[i]; }
  void Sent(size_t i, float q) const { r[i] -= q; }
  void Finish(size_t, uint32_t) const {}
  Status Diagnose(size_t n) const {
    return CheckFinite({r, n}, "the residual");
  }
};

// Quantises the `count` entries at the end of `group`, those of one chunk that
// starts at entry `begin`, drops what rounds to zero and books the rest. False,
// and nothing booked, if one is NaN or Inf: any rule selects such a one.
template <typename Source>
bool QuantiseChunk(Source& source, size_t begin, uint32_t chunk, uint32_t count,
                   ValueCode code, GroupEntries& group) {
  uint16_t* const positions = &group.positions[group.count];
  const float* const values = source.Values(begin);
  const auto base = static_cast<uint16_t>(chunk * kChunkEntries);
  uint32_t largest = 0;
  for (uint32_t i = 0; i < count; ++i) {
    largest = std::max(largest, MagnitudeBits(values[positions[i] - base]));
  }
  if (largest >= kInfinityBits) return false;
  uint32_t scale = 0;
  if (HasScale(code)) {
    scale = ScaleFor(code, std::bit_cast<float>(largest));
    if (scale == 0) return true;
    group.scales[chunk] = static_cast<uint16_t>(scale);
  }
  const float step = FromUpperHalf(scale);
  uint32_t kept = group.count;
  for (uint32_t i = 0; i < count; ++i) {
    const uint16_t position = positions[i];
    const uint32_t at = position - base;
    const Quantised quantised = Quantise(code, values[at], step);
    if (!quantised.kept) continue;
    group.positions[kept] = position;
    group.symbols[kept++] = quantised.symbol;
    source.Sent(begin + at, Dequantise(code, quantised.symbol, step));
  }
  group.count = kept;
  return true;
}

// The one pass that all of exchange.h is made of.
template <typename Source>
Result<Emitted> Emit(Source source, size_t entries,
                     const Compression& compression, Workspace& workspace,
                     std::span<std::byte> out) {
  const SelectionRule& rule = compression.rule;
  const ValueCode code = compression.values;
  const auto each_chunk = [&](auto visit) {
    for (size_t begin = 0; begin < entries; begin += kChunkEntries) {
      visit(begin, static_cast<uint32_t>(
                       std::min<size_t>(kChunkEntries, entries - begin)));
    }
  };

  ChunkTopK top(rule.amount, workspace);
  Cut cut{0, UINT64_MAX};
  bool prepared = false;
  GroupEntries& group = *workspace.group;
  if (entries > 0 && rule.kind == SelectionRule::Kind::kGlobalTopK) {
    each_chunk([&](size_t begin, uint32_t n) {
      source.Prepare(begin, n, kNothing, 0, group.positions.data());
    });
    cut = FindGlobalCut({source.Values(0), entries},
                        KeptOf(rule.amount, entries), workspace);
    prepared = true;
  } else if (rule.kind == SelectionRule::Kind::kThreshold) {
    cut.magnitude = ThresholdFloor(rule.amount);
  } else if (rule.kind == SelectionRule::Kind::kSampledThreshold) {
    cut.magnitude = SampleFloor(
        entries, rule.amount, rule.seed,
        [&](size_t i) { return source.Peek(i); }, workspace);
  }

  Encoder encoder(out, entries, code);
  size_t kept = 0;
  bool finite = true;
  group.count = 0;
  each_chunk([&](size_t begin, uint32_t n) {
    if (!finite) return;
    const auto chunk =
        static_cast<uint32_t>(begin / kChunkEntries % kGroupChunks);
    const auto base = static_cast<uint16_t>(chunk * kChunkEntries);
    uint16_t* const positions = &group.positions[group.count];
    group.chunk_begin[chunk] = group.count;
    const bool by_chunk = rule.kind == SelectionRule::Kind::kChunkTopK;
    const uint32_t floor = by_chunk ? top.floor() : cut.magnitude;
    uint32_t count = prepared
                         ? cpu::Ops().collect(source.Values(begin), n, floor,
                                              base, positions)
                         : source.Prepare(begin, n, floor, base, positions);
    const bool another = begin + 2 * kChunkEntries <= entries;
    if (another) source.Expect(begin + kChunkEntries);
    count = by_chunk
                ? top.Narrow(source.Values(begin), n, base, positions, count)
                : ApplyCut(cut, source.Values(begin), base, positions, count);
    finite = QuantiseChunk(source, begin, chunk, count, code, group);
    if (!finite) return;
    source.Finish(begin, n);
    if (chunk + 1 == kGroupChunks || begin + n == entries) {
      std::fill(group.chunk_begin.begin() + chunk + 1, group.chunk_begin.end(),
                group.count);
      encoder.AddGroup(group);
      kept += group.count;
      group.count = 0;
    }
  });
  if (!finite) {
    const Status diagnosis = source.Diagnose(entries);
    return diagnosis.ok() ? NotFiniteError("the sum", 1, 0) : diagnosis.error();
  }
  const Result<size_t> bytes = encoder.Finish();
  if (!bytes.ok()) return bytes.error();
  return Emitted{*bytes, kept};
}

Error SizeMismatch(const char* what, size_t a, size_t b) {
  return {ErrorCode::kInvalidArgument,
          std::string(what) + " differ in size: " + std::to_string(a) +
              " and " + std::to_string(b) + " entries"};
}

Status CheckArguments(size_t entries, const Compression& compression,
                      std::span<std::byte> out) {
  if (Status status = compression.Check(entries); !status.ok()) return status;
  const size_t needed = compression.MaxBytes(entries);
  if (out.size() >= needed) return Done{};
  return Error{ErrorCode::kInvalidArgument,
               "the output has room for " + std::to_string(out.size()) +
                   " bytes; the code of " + std::to_string(entries) +
                   " entries may take " + std::to_string(needed)};
}

}  // namespace

Status Coefficients::Check() const {
  const auto is_share = [](float v) { return v >= 0.0f && v <= 1.0f; };
  if (is_share(push) && is_share(pull)) return Done{};
  return Error{ErrorCode::kInvalidArgument,
               "push and pull must be from 0 to 1, not " +
                   std::to_string(push) + " and " + std::to_string(pull)};
}

Status Compression::Check(size_t n) const {
  if (n > kMaxEntries) {
    return Error{ErrorCode::kInvalidArgument,
                 std::to_string(n) + " entries are more than the " +
                     std::to_string(kMaxEntries) +
                     " of one message: cut the vector into shards"};
  }
  if (static_cast<int>(values) >= kValueCodes) {
    return Error{
        ErrorCode::kInvalidArgument,
        "there is no value code " + std::to_string(static_cast<int>(values))};
  }
  return rule.Check();
}

Result<Emitted> WorkerStep(std::span<float> x, std::span<float> c,
                           std::span<float> r, Coefficients coefficients,
                           const Compression& compression, Workspace& workspace,
                           std::span<std::byte> out) {
  if (x.size() != c.size())
    return SizeMismatch("model and view", x.size(), c.size());
  if (x.size() != r.size()) {
    return SizeMismatch("model and residual", x.size(), r.size());
  }
  Status status = coefficients.Check();
  if (status.ok()) status = CheckArguments(x.size(), compression, out);
  if (status.ok()) status = CheckFinite(x, "the model", kUsableBits);
  if (!status.ok()) return status.error();
  const ScopedFloatMode mode;
  return Emit(WorkerSource{x.data(), c.data(), r.data(), coefficients},
              x.size(), compression, workspace, out);
}

Status ApplyPush(const Message& push, std::span<float> centre,
                 std::span<float> view) {
  if (push.entries() != centre.size()) {
    return SizeMismatch("push and centre", push.entries(), centre.size());
  }
  if (centre.size() != view.size()) {
    return SizeMismatch("centre and view", centre.size(), view.size());
  }
  Status status = CheckNotHuge(push, "the push");
  if (status.ok()) DecodeAddBoth(push, centre, view);
  return status;
}

Status CheckNotHuge(const Message& message, const char* what) {
  if (!message.huge()) return Done{};
  return Error{ErrorCode::kNotFinite,
               std::string(what) +
                   " carries values of 2^100 or more: the "
                   "sender's model has diverged"};
}

Result<Emitted> MakeReply(std::span<const float> centre, std::span<float> view,
                          const Compression& compression, Workspace& workspace,
                          std::span<std::byte> out) {
  if (centre.size() != view.size()) {
    return SizeMismatch("centre and view", centre.size(), view.size());
  }
  const Status status = CheckArguments(centre.size(), compression, out);
  if (!status.ok()) return status.error();
  const ScopedFloatMode mode;
  ReplySource source{centre.data(), view.data(), workspace.values.data()};
  if (compression.rule.kind == SelectionRule::Kind::kGlobalTopK) {
    workspace.dense.resize(std::max(workspace.dense.size(), centre.size()));
    source.difference = workspace.dense.data();
    source.stride = 1;
  }
  return Emit(source, centre.size(), compression, workspace, out);
}

Result<Emitted> Compress(std::span<float> r, std::span<const float> g,
                         const Compression& compression, Workspace& workspace,
                         std::span<std::byte> out) {
  if (!g.empty() && g.size() != r.size()) {
    return SizeMismatch("residual and gradient", r.size(), g.size());
  }
  Status status = CheckArguments(r.size(), compression, out);
  if (status.ok()) {
    // With nothing to add, the residual is the input.
    status = g.empty() ? CheckFinite(r, "the input")
                       : CheckFinite(g, "the gradient", kUsableBits);
  }
  if (!status.ok()) return status.error();
  const ScopedFloatMode mode;
  return Emit(ResidualSource{r.data(), g.empty() ? nullptr : g.data()},
              r.size(), compression, workspace, out);
}

Result<size_t> Prune(std::span<float> r, std::span<const float> g,
                     float threshold, std::span<uint32_t> indices,
                     std::span<float> values) {
  if (r.size() != g.size()) {
    return SizeMismatch("residual and gradient", r.size(), g.size());
  }
  const size_t room = r.size() + cpu::kVectorSlack;
  if (indices.size() < room || values.size() < room) {
    return Error{ErrorCode::kInvalidArgument,
                 "indices and values need room for " + std::to_string(room)};
  }
  Status status = SelectionRule::Threshold(threshold).Check();
  if (status.ok()) status = CheckFinite(r, "the residual", kUsableBits);
  if (status.ok()) status = CheckFinite(g, "the gradient", kUsableBits);
  if (!status.ok()) return status.error();
  const ScopedFloatMode mode;
  return cpu::Ops().prune(r.data(), g.data(), r.size(),
                          ThresholdFloor(threshold), 0, indices.data(),
                          values.data());
}

}  // namespace tensorlightning
