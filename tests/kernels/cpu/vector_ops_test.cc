// Every instruction set gives the bits of the scalar reference, at every count
// and misalignment, and writes nothing where it must not.
#include "kernels/cpu/vector_ops.h"

#include <gtest/gtest.h>

#include <iostream>
#include <limits>

#include "kernels/cpu/instruction_sets.h"
#include "kernels/exchange.h"
#include "tests/kernels/cpu/portable_lanes.h"
#include "tests/kernels/data.h"

namespace tensorlightning::cpu {
namespace {

using ::tensorlightning::testing::BitsOf;
using ::tensorlightning::testing::Fill;
using ::tensorlightning::testing::Make;

// The tables to compare with the reference. AVX-512's loops run everywhere,
// over sixteen lanes made of plain C++; its own instructions only where a
// processor has them.
std::vector<const VectorOps*> Tables() {
  std::vector<const VectorOps*> tables = {&kPortableOps};
  for (const auto set : {InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (const VectorOps* ops = OpsFor(set)) tables.push_back(ops);
  }
  return tables;
}

TEST(VectorOps, SaysWhichInstructionSetsWereTested) {
  for (const auto& [set, name] :
       {std::pair{InstructionSet::kAvx2, "AVX2"},
        std::pair{InstructionSet::kAvx512, "AVX-512"}}) {
    if (OpsFor(set) == nullptr) {
      std::cout << "NOT TESTED: this processor has no " << name
                << "; its loops were run with emulated lanes only\n";
    } else {
      std::cout << "tested: " << name << "\n";
    }
  }
}

// Counts below four vectors and around a chunk's end, at three alignments.
template <typename Check>
void Sweep(Check check) {
  std::vector<uint32_t> counts;
  for (uint32_t n = 0; n <= 67; ++n) counts.push_back(n);
  for (const uint32_t n : {4079u, 4080u, 4095u, 4096u}) counts.push_back(n);
  for (const uint32_t n : counts) {
    for (const size_t offset : {0u, 1u, 3u}) check(n, offset);
  }
}

constexpr float kSentinel = 12345.0f;
constexpr uint16_t kPositionSentinel = 54321;

// A float array at an odd address with a sentinel behind it.
struct Guarded {
  Guarded(Fill fill, uint32_t n, size_t offset, uint64_t seed)
      : values(offset + n + 1, kSentinel), at(offset) {
    const auto made = Make(fill, n, seed);
    std::copy(made.begin(), made.end(), values.data() + offset);
  }
  float* data() { return values.data() + at; }
  bool operator==(const Guarded& other) const {
    return BitsOf(values) == BitsOf(other.values);
  }
  std::vector<float> values;
  size_t at;
};

struct Collected {
  explicit Collected(uint32_t n)
      : positions(n + kVectorSlack + 1, kPositionSentinel) {}
  // Scrap past `count` is allowed up to the slack, not beyond.
  void ExpectEqual(const Collected& other) const {
    ASSERT_EQ(count, other.count);
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(positions[i], other.positions[i]);
    }
    ASSERT_EQ(positions.back(), kPositionSentinel);
  }
  std::vector<uint16_t> positions;
  uint32_t count = 0;
};

const Fill kFills[] = {Fill::kNormal, Fill::kFewValues, Fill::kDenormal,
                       Fill::kZero};
const float kFloors[] = {0.0f, 1e-41f, 0.5f, 2.0f,
                         std::numeric_limits<float>::infinity()};

TEST(VectorOps, PullAndBookMatchesTheReference) {
  for (const VectorOps* ops : Tables()) {
    SCOPED_TRACE(ops->name);
    for (const Fill fill : kFills) {
      Sweep([&](uint32_t n, size_t offset) {
        for (const float pull : {0.3f, 1.0f}) {
          for (const float floor : kFloors) {
            Guarded x1(fill, n, offset, 1), c1(fill, n, offset, 2),
                r1(fill, n, offset, 3);
            Guarded x2 = x1, c2 = c1, r2 = r1;
            Collected p1(n), p2(n);
            p1.count = kScalarOps.pull_and_book(
                x1.data(), c1.data(), r1.data(), n, pull, 0.25f,
                MagnitudeBits(floor), 8192, p1.positions.data());
            p2.count = ops->pull_and_book(x2.data(), c2.data(), r2.data(), n,
                                          pull, 0.25f, MagnitudeBits(floor),
                                          8192, p2.positions.data());
            p1.ExpectEqual(p2);
            ASSERT_EQ(x1, x2);
            ASSERT_EQ(c1, c2);
            ASSERT_EQ(r1, r2);
          }
        }
      });
    }
  }
}

TEST(VectorOps, CollectingLoopsMatchTheReference) {
  for (const VectorOps* ops : Tables()) {
    SCOPED_TRACE(ops->name);
    for (const Fill fill : kFills) {
      Sweep([&](uint32_t n, size_t offset) {
        for (const float floor : kFloors) {
          const uint32_t bits = MagnitudeBits(floor);
          Guarded a(fill, n, offset, 1), b(fill, n, offset, 2);
          Guarded out1(fill, n, offset, 3);
          Guarded out2 = out1;
          Collected p1(n), p2(n);
          p1.count = kScalarOps.subtract(a.data(), b.data(), out1.data(), n,
                                         bits, 61440, p1.positions.data());
          p2.count = ops->subtract(a.data(), b.data(), out2.data(), n, bits,
                                   61440, p2.positions.data());
          p1.ExpectEqual(p2);
          ASSERT_EQ(out1, out2);

          p1.count = kScalarOps.accumulate(out1.data(), a.data(), n, bits, 0,
                                           p1.positions.data());
          p2.count = ops->accumulate(out2.data(), a.data(), n, bits, 0,
                                     p2.positions.data());
          p1.ExpectEqual(p2);
          ASSERT_EQ(out1, out2);

          p1.count =
              kScalarOps.collect(a.data(), n, bits, 4096, p1.positions.data());
          p2.count = ops->collect(a.data(), n, bits, 4096, p2.positions.data());
          p1.ExpectEqual(p2);
        }
      });
    }
  }
}

TEST(VectorOps, WideLoopsMatchTheReference) {
  for (const VectorOps* ops : Tables()) {
    SCOPED_TRACE(ops->name);
    for (const Fill fill : kFills) {
      Sweep([&](uint32_t n, size_t offset) {
        for (const float floor : kFloors) {
          const uint32_t bits = MagnitudeBits(floor);
          Guarded g(fill, n, offset, 1), r1(fill, n, offset, 2);
          Guarded r2 = r1;
          std::vector<uint32_t> i1(n + kVectorSlack), i2 = i1, m1 = i1, m2 = i1;
          std::vector<float> v1(n + kVectorSlack), v2 = v1;
          const size_t k1 = kScalarOps.collect_wide(g.data(), n, bits, 70000,
                                                    i1.data(), m1.data());
          ASSERT_EQ(k1, ops->collect_wide(g.data(), n, bits, 70000, i2.data(),
                                          m2.data()));
          for (size_t i = 0; i < k1; ++i) {
            ASSERT_EQ(i1[i], i2[i]);
            ASSERT_EQ(m1[i], m2[i]);
          }
          const size_t p1 = kScalarOps.prune(r1.data(), g.data(), n, bits, 5,
                                             i1.data(), v1.data());
          ASSERT_EQ(p1, ops->prune(r2.data(), g.data(), n, bits, 5, i2.data(),
                                   v2.data()));
          ASSERT_EQ(r1, r2);
          for (size_t i = 0; i < p1; ++i) {
            ASSERT_EQ(i1[i], i2[i]);
            ASSERT_EQ(std::bit_cast<uint32_t>(v1[i]),
                      std::bit_cast<uint32_t>(v2[i]));
          }
        }
      });
    }
  }
}

TEST(VectorOps, FindsWhatIsNotFiniteAnywhere) {
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  std::vector<const VectorOps*> tables = Tables();
  tables.push_back(&kScalarOps);
  for (const VectorOps* ops : tables) {
    SCOPED_TRACE(ops->name);
    for (const size_t n : {1u, 7u, 8u, 127u, 4100u, 16384u, 16400u}) {
      std::vector<float> values(n, -std::numeric_limits<float>::max());
      EXPECT_TRUE(ops->all_below(values.data(), n, kInfinityBits));
      for (size_t i = 0; i < n; i += 1 + n / 997) {
        values[i] = bad[i % 3];
        ASSERT_FALSE(ops->all_below(values.data(), n, kInfinityBits)) << i;
        values[i] = 0;
      }
    }
  }
}

TEST(VectorOps, IsolateFindsTheSameKthLargest) {
  for (const Fill fill : {Fill::kNormal, Fill::kFewValues, Fill::kAllEqual}) {
    for (const uint32_t n : {1u, 5u, 16u, 61u, 700u}) {
      std::vector<uint32_t> magnitudes;
      for (const float v : Make(fill, n, 3)) {
        magnitudes.push_back(MagnitudeBits(v));
      }
      for (uint32_t k = 1; k <= n; k += 1 + n / 9) {
        const Isolated expected =
            kScalarOps.isolate(magnitudes.data(), n, k, 0, kInfinityBits);
        for (const VectorOps* ops : Tables()) {
          const Isolated got =
              ops->isolate(magnitudes.data(), n, k, 0, kInfinityBits);
          EXPECT_EQ(got.floor, expected.floor) << ops->name;
          EXPECT_EQ(got.reaching, expected.reaching) << ops->name;
        }
      }
    }
  }
}

// The whole worker's step, bytes and state, under each table.
TEST(VectorOps, WorkerStepGivesTheSameBytesOnAll) {
  const size_t n = 140001;
  for (const Fill fill : {Fill::kNormal, Fill::kMixedScale, Fill::kFewValues}) {
    for (const auto& rule :
         {SelectionRule::ChunkTopK(0.01), SelectionRule::GlobalTopK(0.1),
          SelectionRule::SampledThreshold(0.02)}) {
      const Compression compression{rule, ValueCode::kBits4};
      const auto run = [&](const VectorOps& ops) {
        const VectorOps& before = UseOps(ops);
        std::vector<float> x = Make(fill, n, 1), c = Make(fill, n, 2),
                           r = Make(fill, n, 3);
        std::vector<std::byte> out(compression.MaxBytes(n));
        Workspace workspace;
        const auto emitted =
            WorkerStep(x, c, r, {0.2f, 0.2f}, compression, workspace, out);
        UseOps(before);
        EXPECT_TRUE(emitted.ok());
        out.resize(emitted->bytes);
        return std::tuple(out, BitsOf(x), BitsOf(c), BitsOf(r));
      };
      const auto expected = run(kScalarOps);
      for (const VectorOps* ops : Tables()) {
        EXPECT_EQ(run(*ops), expected) << ops->name;
      }
    }
  }
}

}  // namespace
}  // namespace tensorlightning::cpu
