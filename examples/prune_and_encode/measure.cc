#include "examples/prune_and_encode/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/chunk.h"
#include "kernels/decode.h"
#include "kernels/exchange.h"

namespace tensorlightning::examples {
namespace {

constexpr int kRepetitions = 9;

template <typename Function>
double Seconds(Function function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Norm(std::span<const float> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

double EntropyBits(double density) {
  if (density <= 0 || density >= 1) return 0;
  const double rest = 1 - density;
  return -(density * std::log2(density) + rest * std::log2(rest)) / density;
}

void AddTo(std::span<float> r, std::span<const float> g) {
  for (size_t i = 0; i < r.size(); ++i) r[i] += g[i];
}

// Bytes for the steps of chunks, and for which chunks have one.
size_t ScaleBytes(const Message& message) {
  if (!HasScale(message.value_code())) return 0;
  std::vector<uint32_t> indices(message.kept());
  std::vector<float> values(message.kept());
  DecodeEntries(message, indices, values);
  size_t bytes = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    for (const uint32_t span : {kChunkEntries, kGroupEntries}) {
      const bool first = i == 0 || indices[i] / span != indices[i - 1] / span;
      bytes += first ? 2 : 0;
    }
  }
  return bytes;
}

bool AddsUp(const Message& message, std::span<const float> residual,
            std::span<const float> gradient) {
  std::vector<float> sum(gradient.size());
  DecodeAdd(message, sum, 1.0f);
  AddTo(sum, residual);
  return std::memcmp(sum.data(), gradient.data(), gradient.size_bytes()) == 0;
}

}  // namespace

Result<Cost> Measure(std::span<const float> gradient, double density,
                     ValueCode code) {
  const Compression compression{SelectionRule::ChunkTopK(density), code};
  std::vector<float> residual(gradient.size());
  std::vector<std::byte> out(compression.MaxBytes(gradient.size()));
  Workspace workspace;
  Result<Emitted> emitted = Emitted{};
  std::vector<double> times;
  std::vector<double> roof_times;
  std::vector<double> shares;
  for (int i = 0; i < kRepetitions; ++i) {
    std::fill(residual.begin(), residual.end(), 0.0f);
    roof_times.push_back(Seconds([&] { AddTo(residual, gradient); }));
    std::fill(residual.begin(), residual.end(), 0.0f);
    times.push_back(Seconds([&] {
      emitted = Compress(residual, gradient, compression, workspace, out);
    }));
    if (!emitted.ok()) return emitted.error();
    shares.push_back(roof_times.back() / times.back());
  }

  const auto message =
      Message::Parse(std::span(out).first(emitted->bytes), gradient.size());
  if (!message.ok()) return message.error();
  if (!AddsUp(*message, residual, gradient)) {
    return Error{ErrorCode::kCorrupt,
                 "what was sent and what stayed don't add up to the gradient"};
  }
  const auto kept = static_cast<double>(emitted->kept);
  const auto bits = 8 * static_cast<double>(emitted->bytes);
  const auto scale_bits = 8 * static_cast<double>(ScaleBytes(*message));
  const double per_kept = kept > 0 ? 1 / kept : 0;
  const double norm = Norm(gradient);
  return Cost{
      .kept = emitted->kept,
      .bytes = emitted->bytes,
      .seconds = Median(times),
      .roof_seconds = Median(roof_times),
      .roof_share = Median(shares),
      .scale_bits = scale_bits * per_kept,
      .index_bits = (bits - scale_bits - kept * ValueBits(code)) * per_kept,
      .entropy_bits = EntropyBits(kept / static_cast<double>(gradient.size())),
      .error = norm > 0 ? Norm(residual) / norm : 0,
  };
}

}  // namespace tensorlightning::examples
