// The emulator's pseudo-random numbers: the same seed gives the same schedule
// on every machine. splitmix64 (Steele, Lea and Flood, 2014).
#ifndef KERNELS_CUDA_EMULATOR_RANDOM_H_
#define KERNELS_CUDA_EMULATOR_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace tensorlightning::cuda::emulator {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // From 0 to bound - 1.
  uint32_t Below(uint32_t bound) {
    return static_cast<uint32_t>(((Next() >> 32) * bound) >> 32);
  }

  void Shuffle(std::span<uint32_t> items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[Below(static_cast<uint32_t>(i))]);
    }
  }

  // Plain stores: TSan must not see the filler as a writer.
  void Fill(void* begin, size_t bytes) {
    auto* out = static_cast<unsigned char*>(begin);
    for (; bytes >= 8; bytes -= 8, out += 8) {
      const uint64_t word = Next();
      __builtin_memcpy(out, &word, 8);
    }
    for (uint64_t word = Next(); bytes > 0; --bytes, word >>= 8) {
      *out++ = static_cast<unsigned char>(word);
    }
  }

 private:
  uint64_t state_;
};

}  // namespace tensorlightning::cuda::emulator

#endif  // KERNELS_CUDA_EMULATOR_RANDOM_H_
