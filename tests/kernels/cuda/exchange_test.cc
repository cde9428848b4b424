// The CUDA kernels, executed by the emulator, give the bits of the CPU: every
// rule, value code and kind of input, sizes around every boundary, and several
// schedules. Run under TSan, the same test is a race checker.
#include "kernels/cuda/exchange.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/cuda/emulator/emulator.h"
#include "kernels/exchange.h"
#include "tests/kernels/data.h"

namespace tensorlightning::cuda {
namespace {

using ::tensorlightning::testing::BitsOf;
using ::tensorlightning::testing::Fill;
using ::tensorlightning::testing::Make;

using Bytes = std::vector<std::byte>;
using Vector = std::vector<float>;

// A copy of a host vector on the device, and back.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& host) : size_(host.size()) {
    EXPECT_TRUE(buffer_.Reserve(size_ + 1).ok());
    EXPECT_EQ(cudaMemcpy(buffer_.get(), host.data(), size_ * sizeof(T),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  explicit OnDevice(size_t size) : OnDevice(std::vector<T>(size)) {}
  T* get() const { return buffer_.get(); }
  std::vector<T> Back() const { return Back(size_); }
  std::vector<T> Back(size_t count) const {
    std::vector<T> host(count);
    EXPECT_EQ(cudaMemcpy(host.data(), buffer_.get(), count * sizeof(T),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return host;
  }

 private:
  DeviceBuffer<T> buffer_;
  size_t size_;
};

struct Schedule {
  uint64_t seed;
  int workers;
};
const Schedule kSchedules[] = {{0, 1}, {7, 1}, {21, 2}};

const std::vector<SelectionRule> kRules = {
    SelectionRule::ChunkTopK(0.01),  SelectionRule::ChunkTopK(1),
    SelectionRule::GlobalTopK(0.02), SelectionRule::Threshold(0.5),
    SelectionRule::Threshold(0),     SelectionRule::SampledThreshold(0.03, 7)};
const ValueCode kCodes[] = {ValueCode::kFloat32, ValueCode::kBfloat16,
                            ValueCode::kBits8, ValueCode::kBits4,
                            ValueCode::kBits2};

// The sanitizers make each emulated thread some ten times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kThorough = false;
#else
constexpr bool kThorough = true;
#endif

std::vector<size_t> Sizes() {
  if (!kThorough) return {0, 1, 4097, 65537};
  return {0, 1, 2, 255, 257, 4095, 4096, 4097, 65535, 65537, 140001};
}

class CudaExchange : public ::testing::TestWithParam<size_t> {
 protected:
  const SelectionRule& rule() const { return kRules[GetParam()]; }

  // Calls check(n, fill, code) over the space, rotating through the schedules.
  template <typename Check>
  void Sweep(Check check) {
    size_t turn = 0;
    for (const size_t n : Sizes()) {
      for (const Fill fill : testing::kAllFills) {
        if (fill == Fill::kHuge) continue;  // Too large to be added up.
        const Schedule& schedule = kSchedules[turn % std::size(kSchedules)];
        const ValueCode code = kCodes[turn % std::size(kCodes)];
        ++turn;
        emulator::Configure(
            {.workers = schedule.workers, .seed = schedule.seed + turn});
        SCOPED_TRACE(::testing::Message()
                     << n << " entries, fill " << static_cast<int>(fill)
                     << ", code " << static_cast<int>(code) << ", seed "
                     << schedule.seed + turn);
        check(n, fill, code);
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(CudaExchange, WorkerStepMatchesTheCpu) {
  Workspace workspace;
  DeviceWorkspace device_workspace;
  size_t turn = 0;
  Sweep([&](size_t n, Fill fill, ValueCode code) {
    const Compression compression{rule(), code};
    const Coefficients by =
        turn++ % 2 == 0 ? Coefficients{0.3f, 0.3f} : Coefficients{0.25f, 1.0f};
    Vector x = Make(fill, n, 1), c = Make(fill, n, 2), r = Make(fill, n, 3);
    OnDevice<float> dx(x), dc(c), dr(r);
    Bytes out(compression.MaxBytes(n));
    OnDevice<std::byte> device_out(out.size());

    const auto expected =
        tensorlightning::WorkerStep(x, c, r, by, compression, workspace, out);
    const auto got =
        WorkerStep(dx.get(), dc.get(), dr.get(), n, by, compression,
                   device_workspace, device_out.get(), nullptr);
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    ASSERT_TRUE(got.ok()) << got.error().message;
    ASSERT_EQ(got->kept, expected->kept);
    out.resize(expected->bytes);
    ASSERT_EQ(device_out.Back(got->bytes), out);
    ASSERT_EQ(BitsOf(dx.Back()), BitsOf(x));
    ASSERT_EQ(BitsOf(dc.Back()), BitsOf(c));
    ASSERT_EQ(BitsOf(dr.Back()), BitsOf(r));
  });
}

TEST_P(CudaExchange, AggregatorMatchesTheCpu) {
  Workspace workspace;
  DeviceWorkspace device_workspace;
  Sweep([&](size_t n, Fill fill, ValueCode code) {
    const Compression compression{rule(), code};
    Vector push_values = Make(fill, n, 4);
    Bytes push(compression.MaxBytes(n));
    const auto pushed = tensorlightning::Compress(push_values, {}, compression,
                                                  workspace, push);
    ASSERT_TRUE(pushed.ok());
    push.resize(pushed->bytes);
    const auto message = Message::Parse(push, n);
    ASSERT_TRUE(message.ok());

    Vector centre = Make(fill, n, 5), view = Make(fill, n, 6);
    OnDevice<float> device_centre(centre), device_view(view);
    ASSERT_TRUE(tensorlightning::ApplyPush(*message, centre, view).ok());
    ASSERT_TRUE(ApplyPush(*message, device_centre.get(), device_view.get(),
                          device_workspace, nullptr)
                    .ok());
    ASSERT_EQ(BitsOf(device_centre.Back()), BitsOf(centre));
    ASSERT_EQ(BitsOf(device_view.Back()), BitsOf(view));

    Bytes out(compression.MaxBytes(n));
    OnDevice<std::byte> device_out(out.size());
    const auto expected =
        tensorlightning::MakeReply(centre, view, compression, workspace, out);
    const auto got =
        MakeReply(device_centre.get(), device_view.get(), n, compression,
                  device_workspace, device_out.get(), nullptr);
    ASSERT_TRUE(expected.ok());
    ASSERT_TRUE(got.ok()) << got.error().message;
    out.resize(expected->bytes);
    ASSERT_EQ(device_out.Back(got->bytes), out);
    ASSERT_EQ(BitsOf(device_view.Back()), BitsOf(view));
  });
}

TEST_P(CudaExchange, SelectMatchesTheCpu) {
  Workspace workspace;
  DeviceWorkspace device_workspace;
  Sweep([&](size_t n, Fill fill, ValueCode) {
    const Vector values = Make(fill, n, 7);
    const OnDevice<float> device_values(values);
    OnDevice<uint32_t> indices(rule().MaxKept(n));
    const auto expected = tensorlightning::Select(values, rule(), workspace);
    const auto got = Select(device_values.get(), n, rule(), device_workspace,
                            indices.get(), nullptr);
    ASSERT_TRUE(expected.ok());
    ASSERT_TRUE(got.ok()) << got.error().message;
    ASSERT_EQ(indices.Back(*got),
              std::vector<uint32_t>(expected->begin(), expected->end()));
  });
}

INSTANTIATE_TEST_SUITE_P(Rules, CudaExchange,
                         ::testing::Range<size_t>(0, kRules.size()));

// Positions of all shapes, so that every kind of index is written and read.
TEST(CudaCode, WritesAndReadsEveryKindOfIndex) {
  const size_t n = 70001;
  const std::vector<std::function<bool(size_t)>> shapes = {
      [](size_t i) { return i % 4096 == 4095; },
      [](size_t i) { return i % 64 == 5; },
      [](size_t i) { return i % 2 == 1; },
      [](size_t i) { return i * 2654435761u % 1000 < 500; },
      [](size_t i) { return i % 4096 != 77; },
      [](size_t i) { return i / 1000 % 7 == 3; },
      [](size_t i) { return i % 500 < 8; },
      [](size_t i) { return i / 4096 % 5 == 1; },
      [](size_t i) { return i / 4096 == 6 || i * 2654435761u % 1000 == 0; },
      [](size_t i) { return i < 900; },
      [](size_t i) { return i == 30000 || i == 30001 || i == 34000; }};
  Workspace workspace;
  DeviceWorkspace device_workspace;
  const Compression compression{SelectionRule::Threshold(0), ValueCode::kBits2};
  for (size_t s = 0; s < shapes.size(); ++s) {
    emulator::Configure({.workers = 1, .seed = s});
    Vector values(n);
    for (size_t i = 0; i < n; ++i) values[i] = shapes[s](i) ? 1.0f : 0.0f;
    Vector rest = values;
    OnDevice<float> device_rest(values);
    Bytes out(compression.MaxBytes(n));
    OnDevice<std::byte> device_out(out.size());
    const auto expected =
        tensorlightning::Compress(rest, {}, compression, workspace, out);
    const auto got = Compress(device_rest.get(), nullptr, n, compression,
                              device_workspace, device_out.get(), nullptr);
    ASSERT_TRUE(expected.ok() && got.ok());
    out.resize(expected->bytes);
    ASSERT_EQ(device_out.Back(got->bytes), out) << "shape " << s;

    OnDevice<float> y(n);
    ASSERT_TRUE(DecodeAdd(*Message::Parse(out, n), y.get(), 0.5f,
                          device_workspace, nullptr)
                    .ok());
    Vector halved = values;
    for (float& v : halved) v *= 0.5f;
    ASSERT_EQ(y.Back(), halved) << "shape " << s;
  }
}

TEST(CudaPrune, MatchesTheCpu) {
  DeviceWorkspace device_workspace;
  for (const size_t n : Sizes()) {
    Vector r = Make(Fill::kNormal, n, 1);
    const Vector g = Make(Fill::kNormal, n, 2);
    OnDevice<float> device_r(r), device_g(g), values(n);
    OnDevice<uint32_t> indices(n);
    std::vector<uint32_t> expected_indices(n + 16);
    Vector expected_values(n + 16);
    const auto expected =
        tensorlightning::Prune(r, g, 1.5f, expected_indices, expected_values);
    const auto got =
        Prune(device_r.get(), device_g.get(), n, 1.5f, device_workspace,
              indices.get(), values.get(), nullptr);
    ASSERT_TRUE(got.ok()) << got.error().message;
    ASSERT_EQ(*got, *expected);
    expected_indices.resize(*expected);
    expected_values.resize(*expected);
    EXPECT_EQ(indices.Back(*got), expected_indices);
    EXPECT_EQ(BitsOf(values.Back(*got)), BitsOf(expected_values));
    EXPECT_EQ(BitsOf(device_r.Back()), BitsOf(r));
  }
}

TEST(CudaErrors, NotFiniteInputIsRefusedAndNothingTouched) {
  const size_t n = 70000;
  const Compression compression{SelectionRule::GlobalTopK(0.01),
                                ValueCode::kBits4};
  DeviceWorkspace workspace;
  const Bytes scrap(compression.MaxBytes(n), std::byte{7});
  OnDevice<std::byte> out(scrap);
  const char* const names[] = {"the model", "the view", "the residual"};
  for (int which = 0; which < 3; ++which) {
    Vector vectors[] = {Make(Fill::kNormal, n, 1), Make(Fill::kNormal, n, 2),
                        Make(Fill::kNormal, n, 3)};
    vectors[which][n - 1] = std::numeric_limits<float>::infinity();
    vectors[which][4242] = std::numeric_limits<float>::quiet_NaN();
    OnDevice<float> x(vectors[0]), c(vectors[1]), r(vectors[2]);
    const auto emitted = WorkerStep(x.get(), c.get(), r.get(), n, {0.3f, 0.3f},
                                    compression, workspace, out.get(), nullptr);
    ASSERT_FALSE(emitted.ok());
    EXPECT_EQ(emitted.error().message,
              std::string("2 values of ") + names[which] +
                  " are NaN, Inf or huge, the first at entry 4242");
    EXPECT_EQ(BitsOf(x.Back()), BitsOf(vectors[0]));
    EXPECT_EQ(BitsOf(c.Back()), BitsOf(vectors[1]));
    EXPECT_EQ(BitsOf(r.Back()), BitsOf(vectors[2]));
    EXPECT_EQ(out.Back(), scrap);
  }
}

TEST(CudaErrors, TooLittleDeviceMemoryIsAnErrorThatLosesNothing) {
  const size_t n = 70000;
  const Vector before = Make(Fill::kNormal, n, 1);
  const emulator::Options usual = emulator::CurrentOptions();
  size_t errors = 0;
  for (const auto& rule :
       {SelectionRule::ChunkTopK(0.01), SelectionRule::GlobalTopK(0.01)}) {
    const Compression compression{rule, ValueCode::kBits4};
    for (size_t bytes = 1; bytes < 2'000'000; bytes += bytes / 8 + 1000) {
      OnDevice<float> r(before);
      OnDevice<std::byte> out(compression.MaxBytes(n));
      DeviceWorkspace workspace;
      emulator::Options options = usual;
      options.memory_bytes = bytes;
      emulator::Configure(options);
      const auto emitted = Compress(r.get(), nullptr, n, compression, workspace,
                                    out.get(), nullptr);
      emulator::Configure(usual);
      if (emitted.ok()) continue;
      ++errors;
      ASSERT_EQ(emitted.error().code, ErrorCode::kUnavailable);
      ASSERT_EQ(BitsOf(r.Back()), BitsOf(before)) << bytes << " bytes";
    }
  }
  EXPECT_GT(errors, 10u);
}

}  // namespace
}  // namespace tensorlightning::cuda
