// The same bits everywhere need a*b+c to be rounded twice, even where the
// machine has FMA (this file is compiled for one that does). See .bazelrc.

#include <gtest/gtest.h>

namespace {

TEST(Rounding, ProductIsRoundedBeforeTheSum) {
  if (!__builtin_cpu_supports("fma"))
    GTEST_SKIP() << "this processor has no FMA";
  volatile float input = 1.0F + 0x1p-12F;
  const float x = input;
  // x*x is 1 + 2^-11 + 2^-24, and its last term is lost in rounding; a fused
  // sum would keep it.
  EXPECT_EQ(x * x - (1.0F + 0x1p-11F), 0.0F);
}

}  // namespace
