// What stands for training: a random walk of the model, cheap enough for a
// thousand workers on two cores. A step moves some short runs of entries.
#ifndef TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_WALK_H_
#define TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_WALK_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

namespace tensorlightning {

// SplitMix64: eight bytes of state for each worker.
class SmallRandom {
 public:
  explicit SmallRandom(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  double Share() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

// Moves to draw from, the same for all workers.
class WalkTable {
 public:
  static constexpr size_t kMoves = 4096;

  // Exact: multiples of 2^-8 up to 2^-6, so that sums of up to two million
  // moves are exact in float32, in any order. Otherwise normal, as gradients
  // nearly are.
  WalkTable(uint64_t seed, bool exact) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0.0f, 0.01f);
    std::uniform_int_distribution<int> level(1, 4);
    for (float& move : moves_) {
      const float sign = random() % 2 == 0 ? 1.0f : -1.0f;
      const float drawn = normal(random);
      move = exact ? sign * static_cast<float>(level(random)) * 0x1p-8f : drawn;
    }
  }

  std::span<const float, kMoves> moves() const { return moves_; }

 private:
  std::array<float, kMoves> moves_;
};

// values += moves, all of them.
inline void Sweep(const WalkTable& table, SmallRandom& random,
                  std::span<float> values) {
  size_t from = random.Next() % WalkTable::kMoves;
  for (float& value : values) {
    value += table.moves()[from];
    from = (from + 1) % WalkTable::kMoves;
  }
}

// The same in about a share of them: short runs, anywhere.
inline void Walk(const WalkTable& table, SmallRandom& random, double share,
                 std::span<float> values) {
  if (share >= 1) return Sweep(table, random, values);
  constexpr size_t kRun = 16;
  const size_t length = std::min(kRun, values.size());
  const double wanted = share * static_cast<double>(values.size()) / kRun;
  const auto runs = static_cast<size_t>(std::max(1.0, std::round(wanted)));
  for (size_t i = 0; i < runs; ++i) {
    const uint64_t drawn = random.Next();
    const size_t to = (drawn >> 16) % (values.size() - length + 1);
    const size_t from = drawn % (WalkTable::kMoves - kRun);
    for (size_t j = 0; j < length; ++j) {
      values[to + j] += table.moves()[from + j];
    }
  }
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_WALK_H_
