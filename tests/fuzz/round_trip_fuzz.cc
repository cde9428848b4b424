// Any floats, through any rule and value code: what was sent and what stayed
// add up to the input, to the bit, and bad input is refused untouched.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/exchange.h"

namespace tensorlightning {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

SelectionRule RuleOf(uint8_t kind, uint8_t amount) {
  const double density = (amount + 1) / 256.0;
  switch (kind % 4) {
    case 0:
      return SelectionRule::ChunkTopK(density);
    case 1:
      return SelectionRule::GlobalTopK(density);
    case 2:
      return SelectionRule::Threshold(amount / 64.0);
    default:
      return SelectionRule::SampledThreshold(density, kind);
  }
}

// Repeats the pattern until it is `n` long, so that short inputs reach the
// second chunk and the second group.
std::vector<float> Floats(std::span<const uint8_t> pattern, size_t n) {
  std::vector<float> values(n);
  const size_t whole = pattern.size() / sizeof(float);
  for (size_t i = 0; i < n && whole > 0; ++i) {
    std::memcpy(&values[i], &pattern[i % whole * sizeof(float)], sizeof(float));
  }
  return values;
}

}  // namespace

// Four bytes say how: rule, amount, value code, length. The rest is floats.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kFront = 4;
  if (size < kFront) return 0;
  const Compression compression{RuleOf(data[0], data[1]),
                                static_cast<ValueCode>(data[2] % kValueCodes)};
  const std::span<const uint8_t> pattern(data + kFront, size - kFront);
  const size_t own = pattern.size() / sizeof(float);
  // Mostly one chunk, some two, and now and then a second group.
  const size_t more = data[3] < 250 ? data[3] * size_t{20} : size_t{66000};
  const std::vector<float> before = Floats(pattern, own + more);
  std::vector<float> r = before;
  static Workspace workspace;
  std::vector<std::byte> out(compression.MaxBytes(r.size()));
  const Result<Emitted> emitted = Compress(r, {}, compression, workspace, out);
  if (!emitted.ok()) {
    Require(emitted.error().code == ErrorCode::kNotFinite);
    Require(r.empty() || std::memcmp(r.data(), before.data(),
                                     r.size() * sizeof(float)) == 0);
    return 0;
  }
  const Result<Message> message =
      Message::Parse(std::span(out).first(emitted->bytes), r.size());
  Require(message.ok() && message->kept() == emitted->kept);
  Require(emitted->kept <= compression.rule.MaxKept(r.size()));
  std::vector<float> sum = r;
  DecodeAdd(*message, sum, 1.0f);
  for (size_t i = 0; i < sum.size(); ++i) Require(sum[i] == before[i]);
  return 0;
}

}  // namespace tensorlightning
