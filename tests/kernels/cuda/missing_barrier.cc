// Runs one worker's step on the emulator. Linked twice: with the real kernels,
// and with kernels from which one __syncthreads was removed. Ends with 0 unless
// TSan has something to say.
#include <cstddef>
#include <vector>

#include "kernels/cuda/emulator/emulator.h"
#include "kernels/cuda/exchange.h"
#include "tests/kernels/data.h"

int main() {
  using namespace tensorlightning;  // NOLINT: a program of one function.
  cuda::emulator::Configure({.workers = 1, .seed = 3});
  const size_t n = 9000;
  std::vector<float> r = testing::Make(testing::Fill::kNormal, n, 1);
  const Compression compression{SelectionRule::ChunkTopK(0.01),
                                ValueCode::kBits4};
  std::vector<std::byte> out(compression.MaxBytes(n));
  cuda::DeviceWorkspace workspace;
  const auto emitted = cuda::Compress(r.data(), nullptr, n, compression,
                                      workspace, out.data(), nullptr);
  return emitted.ok() ? 0 : 2;
}
