#include "kernels/exchange.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>

#include "tests/kernels/data.h"

namespace {
std::atomic<size_t> allocations{0};
}  // namespace

// Counts what the whole process allocates.
[[gnu::noinline]] void* operator new(size_t size) {
  allocations++;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace tensorlightning {
namespace {

using testing::BitsOf;
using testing::Fill;
using testing::Make;
using testing::Random;

using Bytes = std::vector<std::byte>;
using Vector = std::vector<float>;

const std::vector<SelectionRule> kRules = {
    SelectionRule::ChunkTopK(0.01),  SelectionRule::ChunkTopK(1),
    SelectionRule::GlobalTopK(0.02), SelectionRule::Threshold(0.05),
    SelectionRule::Threshold(0),     SelectionRule::SampledThreshold(0.03, 7)};
const std::vector<ValueCode> kCodes = {ValueCode::kFloat32,
                                       ValueCode::kBfloat16, ValueCode::kBits8,
                                       ValueCode::kBits4, ValueCode::kBits2};

struct Worker {
  Vector x, c, r;
};

// What a message adds, as a dense vector; parsing it as a receiver would.
Vector Dense(const Bytes& bytes, size_t n) {
  const auto message = Message::Parse(bytes, n);
  EXPECT_TRUE(message.ok()) << message.error().message;
  Vector values(n);
  DecodeAdd(*message, values, 1.0f);
  return values;
}

Bytes Step(Worker& worker, Coefficients by, const Compression& compression,
           Workspace& workspace) {
  Bytes out(compression.MaxBytes(worker.x.size()));
  const auto emitted =
      WorkerStep(worker.x, worker.c, worker.r, by, compression, workspace, out);
  EXPECT_TRUE(emitted.ok()) << emitted.error().message;
  out.resize(emitted->bytes);
  return out;
}

Bytes Reply(const Vector& centre, Vector& view, const Compression& compression,
            Workspace& workspace) {
  Bytes out(compression.MaxBytes(centre.size()));
  const auto emitted = MakeReply(centre, view, compression, workspace, out);
  EXPECT_TRUE(emitted.ok()) << emitted.error().message;
  out.resize(emitted->bytes);
  return out;
}

class EveryCompression
    : public ::testing::TestWithParam<std::tuple<size_t, size_t>> {
 protected:
  Compression compression() const {
    return {kRules[std::get<0>(GetParam())], kCodes[std::get<1>(GetParam())]};
  }
};

// r + sent = what was owed, x moved by the same alpha d that was booked, and
// the view moved by what was sent: each to the bit.
TEST_P(EveryCompression, WorkerStepBooksToTheBit) {
  Workspace workspace;
  for (const size_t n : {1u, 9u, 4096u, 4099u, 65537u}) {
    for (const Fill fill : {Fill::kNormal, Fill::kFewValues, Fill::kMixedScale,
                            Fill::kZero, Fill::kDenormal}) {
      const Worker before{Make(fill, n, 1), Make(fill, n, 2), Make(fill, n, 3)};
      for (const Coefficients by : {Coefficients{0.225f, 0.225f},
                                    {0.25f, 1.0f},
                                    {1, 0},
                                    {0.5f, 0.1f}}) {
        Worker after = before;
        const Vector sent = Dense(Step(after, by, compression(), workspace), n);
        for (size_t i = 0; i < n; ++i) {
          const float d = before.x[i] - before.c[i];
          const float owed = before.r[i] + by.push * d;
          ASSERT_EQ(after.r[i] + sent[i], owed) << i;
          ASSERT_EQ(
              static_cast<double>(after.r[i]) + static_cast<double>(sent[i]),
              static_cast<double>(owed));
          ASSERT_EQ(after.c[i], before.c[i] + sent[i]);
          ASSERT_EQ(after.x[i],
                    by.pull == 1 ? after.c[i] : before.x[i] - by.pull * d);
        }
      }
    }
  }
}

// Several workers, exchanges in random order, replies under way while others
// push: the invariants of sparse elastic averaging after each.
TEST_P(EveryCompression, InvariantsHoldOverRandomSequencesOfExchanges) {
  const size_t n = 9001;
  constexpr size_t kWorkers = 3;
  const Vector start = Make(Fill::kNormal, n, 5);
  Vector centre = start;
  std::vector<double> sum_sent(n);
  Vector replayed = start;  // The centre as its pushes add up, in order.
  std::vector<Worker> workers(kWorkers, {start, start, Vector(n)});
  std::vector<Vector> views(kWorkers, start);
  Workspace workspace;
  Random random(17);
  const Compression reply_compression{SelectionRule::ChunkTopK(0.03),
                                      compression().values};
  for (int round = 0; round < 30; ++round) {
    const size_t i = random() % kWorkers;
    Worker& worker = workers[i];
    const Vector training = Make(Fill::kHeavyTail, n, 100 + round);
    for (size_t j = 0; j < n; ++j) worker.x[j] += 0.001f * training[j];

    const Bytes push = Step(worker, {0.3f, 0.3f}, compression(), workspace);
    ASSERT_TRUE(ApplyPush(*Message::Parse(push, n), centre, views[i]).ok());
    const Vector sent = Dense(push, n);
    for (size_t j = 0; j < n; ++j) {
      replayed[j] += sent[j];
      sum_sent[j] += sent[j];
    }
    const Bytes reply = Reply(centre, views[i], reply_compression, workspace);
    DecodeAdd(*Message::Parse(reply, n), worker.c, 1.0f);

    ASSERT_EQ(BitsOf(worker.c), BitsOf(views[i])) << "round " << round;
    ASSERT_EQ(BitsOf(centre), BitsOf(replayed));
  }
  for (size_t j = 0; j < n; ++j) {
    EXPECT_NEAR(centre[j] - start[j], sum_sent[j], 1e-4);
  }
}

TEST_P(EveryCompression, PruningOnlyDelays) {
  // A worker that stands still sends all it owes, sooner or later: to float32
  // exactly, to coarser values up to what rounds to nothing.
  const size_t n = 5000;
  Vector r = Make(Fill::kNormal, n, 8);
  const Vector owed = r;
  Vector received(n);
  Workspace workspace;
  Bytes out(compression().MaxBytes(n));
  for (int round = 0; round < 400; ++round) {
    const auto emitted = Compress(r, {}, compression(), workspace, out);
    ASSERT_TRUE(emitted.ok());
    DecodeAdd(*Message::Parse(std::span(out).first(emitted->bytes), n),
              received, 1.0f);
  }
  const bool reaches_all =
      compression().rule.kind != SelectionRule::Kind::kThreshold ||
      compression().rule.amount == 0;
  for (size_t i = 0; i < n; ++i) {
    ASSERT_NEAR(received[i], owed[i], reaches_all ? 0.02 : 0.06) << i;
  }
}

TEST_P(EveryCompression, GivesTheSameBitsWhenTheCallerFlushesDenormals) {
  const size_t n = 5000;
  Worker plain{Make(Fill::kDenormal, n, 1), Make(Fill::kDenormal, n, 2),
               Make(Fill::kDenormal, n, 3)};
  Worker flushed = plain;
  Workspace workspace;
  const Bytes expected = Step(plain, {0.3f, 0.3f}, compression(), workspace);
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8040);  // As TensorFlow sets it: FTZ and DAZ.
  const Bytes got = Step(flushed, {0.3f, 0.3f}, compression(), workspace);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(mode);
  EXPECT_EQ(after & 0x8040, 0x8040u) << "the caller's mode is the caller's";
  EXPECT_EQ(expected, got);
  EXPECT_EQ(BitsOf(plain.r), BitsOf(flushed.r));
  EXPECT_EQ(BitsOf(plain.c), BitsOf(flushed.c));
  EXPECT_EQ(BitsOf(plain.x), BitsOf(flushed.x));
}

TEST_P(EveryCompression, AllocatesNothingOnceWarm) {
  const size_t n = 300000;
  Worker worker{Make(Fill::kNormal, n, 1), Make(Fill::kNormal, n, 2),
                Vector(n)};
  Vector centre = Make(Fill::kNormal, n, 4);
  Vector view(n);
  Workspace workspace;
  Bytes out(compression().MaxBytes(n));
  const auto round = [&] {
    const auto push = WorkerStep(worker.x, worker.c, worker.r, {0.2f, 0.2f},
                                 compression(), workspace, out);
    const auto message = Message::Parse(std::span(out).first(push->bytes), n);
    const bool applied = ApplyPush(*message, centre, view).ok();
    const auto reply = MakeReply(centre, view, compression(), workspace, out);
    return applied && reply.ok();
  };
  ASSERT_TRUE(round());
  const size_t before = allocations;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(round());
  EXPECT_EQ(allocations - before, 0u);
}

TEST(Exchange, DenseFloat32IsPlainAsynchronousElasticAveraging) {
  // The textbook rule in double: x_i -= a (x_i - C); C += a (x_i - C).
  const size_t n = 2000;
  constexpr size_t kWorkers = 4;
  constexpr float kAlpha = 0.9f / kWorkers;
  const Vector start = Make(Fill::kNormal, n, 1);
  std::vector<double> centre_exact(start.begin(), start.end());
  std::vector<std::vector<double>> x_exact(kWorkers, centre_exact);
  Vector centre = start;
  std::vector<Worker> workers(kWorkers, {start, start, Vector(n)});
  std::vector<Vector> views(kWorkers, start);
  const Compression all{SelectionRule::ChunkTopK(1), ValueCode::kFloat32};
  Workspace workspace;
  Random random(3);
  for (int round = 0; round < 100; ++round) {
    const size_t i = random() % kWorkers;
    const Vector training = Make(Fill::kNormal, n, 200 + round);
    for (size_t j = 0; j < n; ++j) {
      workers[i].x[j] += 0.1f * training[j];
      x_exact[i][j] += 0.1f * training[j];
    }
    // The worker hears of the others first, as the textbook's does.
    const Bytes news = Reply(centre, views[i], all, workspace);
    DecodeAdd(*Message::Parse(news, n), workers[i].c, 1.0f);
    const Bytes push = Step(workers[i], {kAlpha, kAlpha}, all, workspace);
    ASSERT_TRUE(ApplyPush(*Message::Parse(push, n), centre, views[i]).ok());
    for (size_t j = 0; j < n; ++j) {
      const double d = kAlpha * (x_exact[i][j] - centre_exact[j]);
      x_exact[i][j] -= d;
      centre_exact[j] += d;
    }
  }
  for (size_t j = 0; j < n; ++j) {
    ASSERT_NEAR(centre[j], centre_exact[j], 1e-5);
    for (size_t i = 0; i < kWorkers; ++i) {
      ASSERT_NEAR(workers[i].x[j], x_exact[i][j], 1e-5);
    }
  }
}

const float kNan = std::numeric_limits<float>::quiet_NaN();
const float kInf = std::numeric_limits<float>::infinity();

TEST_P(EveryCompression, RefusesNotFiniteModelsAndTouchesNothing) {
  const size_t n = 70000;
  Workspace workspace;
  Bytes out(compression().MaxBytes(n), std::byte{7});
  const Bytes out_before = out;
  Worker worker{Make(Fill::kNormal, n, 1), Make(Fill::kNormal, n, 2),
                Make(Fill::kNormal, n, 3)};
  worker.x[n - 1] = kInf;
  worker.x[4242] = kNan;
  const Worker before = worker;
  const auto emitted = WorkerStep(worker.x, worker.c, worker.r, {0.3f, 0.3f},
                                  compression(), workspace, out);
  ASSERT_FALSE(emitted.ok());
  EXPECT_EQ(emitted.error().code, ErrorCode::kNotFinite);
  EXPECT_EQ(emitted.error().message,
            "2 values of the model are NaN, Inf or huge, the first at entry "
            "4242");
  EXPECT_EQ(BitsOf(worker.x), BitsOf(before.x));
  EXPECT_EQ(BitsOf(worker.c), BitsOf(before.c));
  EXPECT_EQ(BitsOf(worker.r), BitsOf(before.r));
  EXPECT_EQ(out, out_before);

  Vector gradient = Make(Fill::kNormal, n, 4);
  gradient[0] = -kInf;
  Vector r = before.r;
  EXPECT_EQ(
      Compress(r, gradient, compression(), workspace, out).error().message,
      "1 value of the gradient is NaN, Inf or huge, at entry 0");
  EXPECT_EQ(BitsOf(r), BitsOf(before.r));
}

TEST_P(EveryCompression, SendsNothingFromBrokenState) {
  const size_t n = 70000;
  Workspace workspace;
  Bytes out(compression().MaxBytes(n));
  for (const float bad : {kNan, kInf, -kInf}) {
    Worker worker{Make(Fill::kNormal, n, 1), Make(Fill::kNormal, n, 2),
                  Make(Fill::kNormal, n, 3)};
    worker.c[66000] = bad;
    const auto by_view = WorkerStep(worker.x, worker.c, worker.r, {0.3f, 0.3f},
                                    compression(), workspace, out);
    ASSERT_FALSE(by_view.ok());
    EXPECT_EQ(by_view.error().message,
              "1 value of the view is NaN or Inf, at entry 66000");

    worker = {Make(Fill::kNormal, n, 1), Make(Fill::kNormal, n, 2),
              Make(Fill::kNormal, n, 3)};
    worker.r[3] = bad;
    const auto by_residual =
        WorkerStep(worker.x, worker.c, worker.r, {0.3f, 0.3f}, compression(),
                   workspace, out);
    ASSERT_FALSE(by_residual.ok());
    EXPECT_EQ(by_residual.error().message,
              "1 value of the residual is NaN or Inf, at entry 3");

    Vector centre = Make(Fill::kNormal, n, 5);
    centre[4096] = bad;
    Vector view = Make(Fill::kNormal, n, 6);
    const auto reply = MakeReply(centre, view, compression(), workspace, out);
    ASSERT_FALSE(reply.ok());
    EXPECT_EQ(reply.error().message,
              "1 value of the centre is NaN, Inf or huge, at entry 4096");
  }
}

INSTANTIATE_TEST_SUITE_P(RulesAndCodes, EveryCompression,
                         ::testing::Combine(::testing::Range<size_t>(0, 6),
                                            ::testing::Range<size_t>(0, 5)));

TEST(Exchange, NeverTurnsFiniteInputIntoInf) {
  const size_t n = 5000;
  Worker worker{Vector(n, 1e30f), Vector(n, -1e30f), Vector(n, 1e30f)};
  const Compression compression{SelectionRule::ChunkTopK(1), ValueCode::kBits8};
  Workspace workspace;
  const Bytes push = Step(worker, {1, 1}, compression, workspace);
  for (const Vector* v : {&worker.x, &worker.c, &worker.r}) {
    for (const float value : *v) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(Exchange, RefusesSizesAndCoefficientsThatDontFit) {
  Vector x(10), c(10), r(9);
  const Compression compression{SelectionRule::ChunkTopK(0.1),
                                ValueCode::kBits4};
  Workspace workspace;
  Bytes out(compression.MaxBytes(10));
  const auto code = [](const auto& result) { return result.error().code; };
  EXPECT_EQ(
      code(WorkerStep(x, c, r, {0.1f, 0.1f}, compression, workspace, out)),
      ErrorCode::kInvalidArgument);
  r.resize(10);
  EXPECT_EQ(
      code(WorkerStep(x, c, r, {1.5f, 0.1f}, compression, workspace, out)),
      ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(WorkerStep(x, c, r, {0.1f, NAN}, compression, workspace, out)),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(WorkerStep(x, c, r, {0.1f, 0.1f}, compression, workspace,
                            std::span(out).first(out.size() - 1))),
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(
      WorkerStep(x, c, r, {0.1f, 0.1f}, compression, workspace, out).ok());
  // Numbers from a file or a binding, cast to what they are not.
  const Compression no_code{SelectionRule::ChunkTopK(0.1),
                            static_cast<ValueCode>(5)};
  EXPECT_EQ(no_code.Check(10).error().message, "there is no value code 5");
  const Compression no_rule{{static_cast<SelectionRule::Kind>(9), 0.1},
                            ValueCode::kBits4};
  EXPECT_EQ(no_rule.Check(10).error().message, "there is no selection rule 9");
}

TEST(Exchange, HugePushesNeverReachTheCentre) {
  const size_t n = 100;
  Workspace workspace;
  for (const ValueCode code : kCodes) {
    const Compression compression{SelectionRule::ChunkTopK(1), code};
    Bytes out(compression.MaxBytes(n));
    Vector values(n, 3e38f);
    const auto emitted = Compress(values, {}, compression, workspace, out);
    ASSERT_TRUE(emitted.ok());
    const auto push = Message::Parse(std::span(out).first(emitted->bytes), n);
    ASSERT_TRUE(push.ok());
    Vector centre(n, 1.0f);
    Vector view(n, 1.0f);
    const Status status = ApplyPush(*push, centre, view);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kNotFinite);
    EXPECT_EQ(centre, Vector(n, 1.0f));
    EXPECT_EQ(view, Vector(n, 1.0f));
  }
}

TEST(Exchange, RefusesPushesOfAnotherSize) {
  const Compression compression{SelectionRule::ChunkTopK(1),
                                ValueCode::kFloat32};
  Workspace workspace;
  Bytes out(compression.MaxBytes(10));
  Vector values(10, 1.0f);
  const auto emitted = Compress(values, {}, compression, workspace, out);
  const auto push = Message::Parse(std::span(out).first(emitted->bytes), 10);
  Vector centre(11);
  Vector view(11);
  EXPECT_EQ(ApplyPush(*push, centre, view).error().message,
            "push and centre differ in size: 10 and 11 entries");
  EXPECT_DEATH(DecodeAdd(*push, centre, 1.0f), "vectors of another size");
}

TEST(Exchange, RefusesAResidualThatIsNotFiniteBeforeTouchingIt) {
  Vector r = Make(Fill::kNormal, 9000, 1);
  r[8999] = kNan;
  const Vector before = r;
  const Compression compression{SelectionRule::ChunkTopK(0.1),
                                ValueCode::kBits4};
  Workspace workspace;
  Bytes out(compression.MaxBytes(r.size()));
  EXPECT_EQ(Compress(r, {}, compression, workspace, out).error().message,
            "1 value of the input is NaN or Inf, at entry 8999");
  EXPECT_EQ(BitsOf(r), BitsOf(before));
}

// The aggregator's half under a caller that flushes denormals.
TEST(Exchange, RepliesAndDecodesDenormalsWhateverTheCallerHasSet) {
  const size_t n = 5000;
  const Vector centre = Make(Fill::kDenormal, n, 1);
  const Compression compression{SelectionRule::ChunkTopK(1),
                                ValueCode::kFloat32};
  Workspace workspace;
  const auto run = [&] {
    Vector view(n);
    const Bytes reply = Reply(centre, view, compression, workspace);
    Vector y(n, 1e-40f);
    DecodeAdd(*Message::Parse(reply, n), y, 0.5f);
    return std::tuple(reply, BitsOf(view), BitsOf(y));
  };
  const auto expected = run();
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8040);
  const auto got = run();
  _mm_setcsr(mode);
  EXPECT_EQ(got, expected);
}

TEST(Prune, MovesWhatReachesTheThresholdOutOfTheResidual) {
  for (const size_t n : testing::EdgeSizes()) {
    const Vector r_before = Make(Fill::kNormal, n, 1);
    const Vector g = Make(Fill::kNormal, n, 2);
    Vector r = r_before;
    std::vector<uint32_t> indices(n + 16);
    Vector values(n + 16);
    const auto moved = Prune(r, g, 2.0f, indices, values);
    ASSERT_TRUE(moved.ok());
    Vector sent(n);
    for (size_t i = 0; i < *moved; ++i) sent[indices[i]] = values[i];
    for (size_t i = 0; i < n; ++i) {
      const float sum = r_before[i] + g[i];
      ASSERT_EQ(sent[i], std::abs(sum) >= 2.0f ? sum : 0.0f);
      ASSERT_EQ(r[i], std::abs(sum) >= 2.0f ? 0.0f : sum);
    }
  }
}

}  // namespace
}  // namespace tensorlightning
