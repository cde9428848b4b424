#include <algorithm>
#include <initializer_list>

#include "kernels/chunk.h"
#include "kernels/cuda/cut.h"
#include "kernels/cuda/encode.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/select_chunks.cuh"
#include "kernels/cuda/sources.cuh"
#include "kernels/finite.h"

namespace tensorlightning::cuda {
namespace {

struct Input {
  const float* values;
  const char* name;
  uint32_t limit;
};

template <typename Source>
__global__ void __launch_bounds__(kThreads)
    TakeSamples(Source source, size_t samples, size_t entries, uint64_t seed,
                float* out) {
  const size_t s = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (s < samples) {
    out[s] = source.Peek(SampleIndex(s, samples, entries, seed));
  }
}

__global__ void SetFloor(uint32_t magnitude, Control* control) {
  control->magnitude = magnitude;
  control->ties = ~0ull;
}

// Runs `step` unless something has failed before.
template <typename Step>
void Then(Status& status, Step step) {
  if (status.ok()) status = step();
}

Status StartChecks(std::initializer_list<Input> inputs, size_t n,
                   DeviceWorkspace& workspace, cudaStream_t stream) {
  Status status = workspace.control.Reserve(1);
  if (!status.ok()) return status;
  Control* const control = workspace.control.get();
  Then(status, [&] {
    return ToStatus(cudaMemsetAsync(control, 0, sizeof(Control), stream),
                    "reset");
  });
  // `first` begins as the largest number there is.
  Then(status, [&] {
    return ToStatus(
        cudaMemsetAsync(control->first, 0xff, sizeof(control->first), stream),
        "reset");
  });
  uint32_t which = 0;
  for (const Input& input : inputs) {
    Then(status, [&] {
      return CheckBelow(input.values, n, input.limit, which, control, stream);
    });
    ++which;
  }
  return status;
}

// Enqueues everything up to the kept entries of every chunk.
template <typename Source>
Result<KeptChunks> SelectAll(Source source, const float* values, size_t n,
                             const SelectionRule& rule, ValueCode code,
                             bool keep_zeros, DeviceWorkspace& workspace,
                             cudaStream_t stream) {
  const size_t chunks = ChunkCount(n);
  const bool by_chunk = rule.kind == SelectionRule::Kind::kChunkTopK;
  const bool global = rule.kind == SelectionRule::Kind::kGlobalTopK;
  const auto slots = static_cast<uint32_t>(
      by_chunk ? KeptOf(rule.amount, kChunkEntries) : kChunkEntries);
  Control* const control = workspace.control.get();
  Status status = workspace.positions.Reserve(chunks * slots + 1);
  Then(status, [&] { return workspace.symbols.Reserve(chunks * slots + 1); });
  Then(status, [&] { return workspace.counts.Reserve(chunks + 1); });
  Then(status, [&] { return workspace.scales.Reserve(chunks + 1); });
  Then(status, [&] { return workspace.ties.Reserve(chunks + 1); });
  Then(status, [&] { return workspace.chunk_offsets.Reserve(chunks + 1); });
  Then(status, [&] { return workspace.samples.Reserve(kSamples); });
  Then(status, [&] { return workspace.bins.Reserve(kBins); });
  if (!status.ok()) return status.error();
  const KeptChunks kept{workspace.positions.get(), workspace.symbols.get(),
                        workspace.counts.get(), workspace.scales.get(), slots};
  if (n == 0) return kept;

  const auto blocks = static_cast<uint32_t>(chunks);
  if (global) {
    Then(status, [&] {
      return ToStatus(Launch(PrepareAll<Source>, std::min(blocks, 2048u),
                             kThreads, stream, source, n, control),
                      "prepare");
    });
    Then(status, [&] {
      return FindCut(values, n, KeptOf(rule.amount, n), workspace, stream);
    });
    Then(status, [&] {
      return CountTies(values, n, control, workspace.ties.get(), stream);
    });
    Then(status, [&] {
      return MakeOffsets(workspace.ties.get(), chunks, 0,
                         workspace.chunk_offsets.get(), control, stream);
    });
  } else if (rule.kind == SelectionRule::Kind::kThreshold) {
    Then(status, [&] {
      return ToStatus(
          Launch(SetFloor, 1, 1, stream, ThresholdFloor(rule.amount), control),
          "threshold");
    });
  } else if (rule.kind == SelectionRule::Kind::kSampledThreshold) {
    const size_t samples = std::min(n, kSamples);
    Then(status, [&] {
      return ToStatus(
          Launch(TakeSamples<Source>,
                 static_cast<uint32_t>((samples + kThreads - 1) / kThreads),
                 kThreads, stream, source, samples, n, rule.seed,
                 workspace.samples.get()),
          "sample");
    });
    Then(status, [&] {
      return FindCut(workspace.samples.get(), samples,
                     KeptOf(rule.amount, samples), workspace, stream);
    });
    Then(status, [&] { return CutToFloor(control, stream); });
  }
  const SelectArguments arguments{
      n,
      code,
      by_chunk ? slots : 0,
      by_chunk ? static_cast<uint32_t>(KeptOf(rule.amount, n % kChunkEntries))
               : 0,
      keep_zeros,
      control,
      global ? workspace.chunk_offsets.get() : nullptr,
      slots,
      workspace.positions.get(),
      workspace.symbols.get(),
      workspace.counts.get(),
      workspace.scales.get()};
  Then(status, [&] {
    const auto kernel =
        global ? SelectChunks<true, Source> : SelectChunks<false, Source>;
    return ToStatus(Launch(kernel, blocks, kThreads, stream, source, arguments),
                    "select");
  });
  if (!status.ok()) return status.error();
  return kept;
}

// Waits for the stream; the control block, or what went wrong.
Result<Control> Conclude(std::initializer_list<Input> inputs,
                         DeviceWorkspace& workspace, cudaStream_t stream) {
  Control control{};
  Status status =
      ToStatus(cudaMemcpyAsync(&control, workspace.control.get(),
                               sizeof(control), cudaMemcpyDeviceToHost, stream),
               "result");
  Then(status,
       [&] { return ToStatus(cudaStreamSynchronize(stream), "synchronise"); });
  if (!status.ok()) return status.error();
  uint32_t which = 0;
  for (const Input& input : inputs) {
    if (control.unusable[which] > 0) {
      return NotFiniteError(input.name, control.unusable[which],
                            control.first[which], input.limit);
    }
    ++which;
  }
  return control;
}

template <typename Source>
Result<Emitted> Emit(Source source, const float* values, size_t n,
                     const Compression& compression,
                     std::initializer_list<Input> inputs,
                     DeviceWorkspace& workspace, std::byte* out,
                     cudaStream_t stream) {
  Status status = compression.Check(n);
  Then(status, [&] { return ReserveForEncoding(n, workspace); });
  Then(status, [&] { return StartChecks(inputs, n, workspace, stream); });
  if (!status.ok()) return status.error();
  const Result<KeptChunks> kept =
      SelectAll(source, values, n, compression.rule, compression.values,
                /*keep_zeros=*/false, workspace, stream);
  if (!kept.ok()) return kept.error();
  status = EncodeGroups(*kept, n, compression.values, workspace, out, stream);
  if (!status.ok()) return status.error();
  const Result<Control> control = Conclude(inputs, workspace, stream);
  if (!control.ok()) return control.error();
  return Emitted{control->total, control->kept};
}

template <typename Source>
Result<size_t> SelectFlat(Source source, const float* values, size_t n,
                          const SelectionRule& rule,
                          std::initializer_list<Input> inputs,
                          DeviceWorkspace& workspace, uint32_t* indices,
                          float* kept_values, cudaStream_t stream) {
  Status status = rule.Check();
  Then(status, [&] { return StartChecks(inputs, n, workspace, stream); });
  if (!status.ok()) return status.error();
  const Result<KeptChunks> kept =
      SelectAll(source, values, n, rule, ValueCode::kFloat32,
                /*keep_zeros=*/true, workspace, stream);
  if (!kept.ok()) return kept.error();
  status = Flatten(*kept, n, workspace, indices, kept_values, stream);
  if (!status.ok()) return status.error();
  const Result<Control> control = Conclude(inputs, workspace, stream);
  if (!control.ok()) return control.error();
  return static_cast<size_t>(control->total);
}

}  // namespace

Result<Emitted> WorkerStep(float* x, float* c, float* r, size_t n,
                           Coefficients coefficients,
                           const Compression& compression,
                           DeviceWorkspace& workspace, std::byte* out,
                           cudaStream_t stream) {
  if (const Status status = coefficients.Check(); !status.ok()) {
    return status.error();
  }
  return Emit(WorkerSource{x, c, r, coefficients.push, coefficients.pull}, r, n,
              compression,
              {{x, "the model", kUsableBits},
               {c, "the view", kUsableBits},
               {r, "the residual", kUsableBits}},
              workspace, out, stream);
}

Result<Emitted> MakeReply(const float* centre, float* view, size_t n,
                          const Compression& compression,
                          DeviceWorkspace& workspace, std::byte* out,
                          cudaStream_t stream) {
  float* dense = nullptr;
  if (compression.rule.kind == SelectionRule::Kind::kGlobalTopK) {
    const Status status = workspace.dense.Reserve(n + 1);
    if (!status.ok()) return status.error();
    dense = workspace.dense.get();
  }
  return Emit(
      ReplySource{centre, view, dense}, dense, n, compression,
      {{centre, "the centre", kUsableBits}, {view, "the view", kUsableBits}},
      workspace, out, stream);
}

Result<Emitted> Compress(float* r, const float* g, size_t n,
                         const Compression& compression,
                         DeviceWorkspace& workspace, std::byte* out,
                         cudaStream_t stream) {
  const ResidualSource source{r, g};
  if (g == nullptr) {
    return Emit(source, r, n, compression, {{r, "the input", kInfinityBits}},
                workspace, out, stream);
  }
  return Emit(
      source, r, n, compression,
      {{r, "the residual", kUsableBits}, {g, "the gradient", kUsableBits}},
      workspace, out, stream);
}

Result<size_t> Select(const float* values, size_t n, const SelectionRule& rule,
                      DeviceWorkspace& workspace, uint32_t* indices,
                      cudaStream_t stream) {
  return SelectFlat(ReadOnlySource{values}, values, n, rule,
                    {{values, "the input", kInfinityBits}}, workspace, indices,
                    nullptr, stream);
}

Result<size_t> Prune(float* r, const float* g, size_t n, float threshold,
                     DeviceWorkspace& workspace, uint32_t* indices,
                     float* values, cudaStream_t stream) {
  return SelectFlat(
      ResidualSource{r, g}, r, n, SelectionRule::Threshold(threshold),
      {{r, "the residual", kUsableBits}, {g, "the gradient", kUsableBits}},
      workspace, indices, values, stream);
}

}  // namespace tensorlightning::cuda
