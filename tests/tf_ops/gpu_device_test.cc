// What the pure ops do on a GPU, in the order in which SparseOp does it, gives
// the bits of the CPU.
#include "tf_ops/gpu_device.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/cuda/emulator/emulator.h"
#include "kernels/exchange.h"
#include "tests/kernels/data.h"

namespace tensorlightning {
namespace {

using ::tensorlightning::testing::BitsOf;
using ::tensorlightning::testing::Fill;
using ::tensorlightning::testing::Make;

using Vector = std::vector<float>;

class Floats {
 public:
  explicit Floats(const Vector& host) : size_(host.size()) {
    EXPECT_TRUE(buffer_.Reserve(size_ + 1).ok());
    EXPECT_EQ(cudaMemcpy(get(), host.data(), size_ * sizeof(float),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  float* get() const { return buffer_.get(); }
  Vector Back() const {
    Vector host(size_);
    EXPECT_EQ(cudaMemcpy(host.data(), get(), size_ * sizeof(float),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return host;
  }

 private:
  cuda::DeviceBuffer<float> buffer_;
  size_t size_;
};

struct Outcome {
  std::vector<std::byte> code;
  Vector sent;
  Vector left;
};

Outcome OnGpu(const Vector& residual, const Vector* gradient,
              const Compression& compression, GpuDevice::State& state) {
  const size_t n = residual.size();
  GpuDevice device(nullptr, state);
  const Floats input(residual);
  const Floats added(gradient == nullptr ? Vector() : *gradient);
  const Floats left(Vector(n, 7.0f));
  const Floats sent(Vector(n, 7.0f));
  EXPECT_TRUE(device.Copy(input.get(), left.get(), n).ok());
  const Result<std::span<const std::byte>> code = device.Compress(
      left.get(), gradient == nullptr ? nullptr : added.get(), n, compression);
  EXPECT_TRUE(code.ok());
  const Result<Message> message = Message::Parse(*code, n);
  EXPECT_TRUE(message.ok());
  EXPECT_TRUE(device.Clear(sent.get(), n).ok());
  EXPECT_TRUE(device.DecodeAdd(*message, sent.get()).ok());
  EXPECT_EQ(BitsOf(input.Back()), BitsOf(residual));
  return {{code->begin(), code->end()}, sent.Back(), left.Back()};
}

Outcome OnCpu(const Vector& residual, const Vector* gradient,
              const Compression& compression) {
  const size_t n = residual.size();
  Outcome outcome{std::vector<std::byte>(compression.MaxBytes(n)), Vector(n),
                  residual};
  Workspace workspace;
  const std::span<const float> added =
      gradient == nullptr ? std::span<const float>() : *gradient;
  const Result<Emitted> emitted =
      Compress(outcome.left, added, compression, workspace, outcome.code);
  EXPECT_TRUE(emitted.ok());
  outcome.code.resize(emitted->bytes);
  DecodeAdd(*Message::Parse(outcome.code, n), outcome.sent, 1.0f);
  return outcome;
}

TEST(GpuDevice, GivesTheBitsOfTheCpu) {
  GpuDevice::State state;  // Used again and again, as an op does.
  for (const size_t n : {0, 1, 100, 4096, 4097, 10000}) {
    for (const ValueCode code : {ValueCode::kFloat32, ValueCode::kBits4}) {
      const Compression compression{SelectionRule::ChunkTopK(0.05), code};
      const Vector values = Make(Fill::kNormal, n, 1);
      const Vector gradient = Make(Fill::kHeavyTail, n, 2);
      for (const Vector* added : {static_cast<const Vector*>(nullptr),
                                  static_cast<const Vector*>(&gradient)}) {
        const Outcome gpu = OnGpu(values, added, compression, state);
        const Outcome cpu = OnCpu(values, added, compression);
        EXPECT_EQ(gpu.code, cpu.code) << n;
        EXPECT_EQ(BitsOf(gpu.sent), BitsOf(cpu.sent)) << n;
        EXPECT_EQ(BitsOf(gpu.left), BitsOf(cpu.left)) << n;
      }
    }
  }
}

TEST(GpuDevice, RefusesNanWithItsPlace) {
  Vector values = Make(Fill::kNormal, 5000, 1);
  values[4321] = std::numeric_limits<float>::quiet_NaN();
  const Floats input(values);
  GpuDevice::State state;
  GpuDevice device(nullptr, state);
  const Compression compression{SelectionRule::ChunkTopK(0.1),
                                ValueCode::kBits8};
  EXPECT_EQ(device.Compress(input.get(), nullptr, values.size(), compression)
                .error()
                .message,
            "1 value of the input is NaN or Inf, at entry 4321");
}

TEST(GpuDevice, SaysThatThereIsNone) {
  cuda::emulator::Configure({.devices = 0});
  GpuDevice::State state;
  GpuDevice device(nullptr, state);
  const Compression compression{SelectionRule::ChunkTopK(0.1),
                                ValueCode::kBits8};
  EXPECT_EQ(device.Compress(nullptr, nullptr, 10, compression).error().code,
            ErrorCode::kUnavailable);
  cuda::emulator::Configure({});
}

}  // namespace
}  // namespace tensorlightning
