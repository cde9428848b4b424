// Applying a message of 1% and 4 bits, beside a bare scatter-add of the same
// indices and values.
#include "kernels/decode.h"

#include <vector>

#include "bench/data.h"
#include "bench/versus.h"
#include "kernels/exchange.h"

namespace tensorlightning::bench {
namespace {

constexpr int kQuickTurns = 50;

struct Coded {
  Coded() {
    std::vector<float> r = Gradient();
    const Compression compression{SelectionRule::GlobalTopK(0.01),
                                  ValueCode::kBits4};
    bytes.resize(compression.MaxBytes(r.size()));
    Workspace workspace;
    bytes.resize(Compress(r, {}, compression, workspace, bytes)->bytes);
    const Message message = Parse();
    indices.resize(message.kept());
    values.resize(message.kept());
    DecodeEntries(message, indices, values);
  }
  Message Parse() const { return *Message::Parse(bytes, Entries()); }

  std::vector<std::byte> bytes;
  std::vector<uint32_t> indices;
  std::vector<float> values;
};

// `kernel` adds the message to a vector.
template <typename Kernel>
void AgainstScatter(benchmark::State& state, const Coded& coded,
                    Kernel kernel) {
  std::vector<float> y(Entries());
  TakeTurns(
      state, Clock::kThread,
      {.entries = static_cast<double>(coded.indices.size())}, [] {},
      [&] {
        for (size_t i = 0; i < coded.indices.size(); ++i) {
          y[coded.indices[i]] += coded.values[i];
        }
      },
      [&] { kernel(y); });
}

// Of a message that was validated when it came in.
void Decode(benchmark::State& state) {
  const Coded coded;
  const Message message = coded.Parse();
  AgainstScatter(state, coded,
                 [&](std::vector<float>& y) { DecodeAdd(message, y, 1.0f); });
}
TL_BENCH_VERSUS(Decode, "decode_1pct", kQuickTurns);

// Validating included.
void DecodeFromBytes(benchmark::State& state) {
  const Coded coded;
  AgainstScatter(state, coded, [&](std::vector<float>& y) {
    DecodeAdd(coded.Parse(), y, 1.0f);
  });
}
TL_BENCH_VERSUS(DecodeFromBytes, "decode_from_bytes_1pct", kQuickTurns);

}  // namespace
}  // namespace tensorlightning::bench
