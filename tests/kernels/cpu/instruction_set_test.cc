// Runs with TL_INSTRUCTION_SET=scalar in its environment (see BUILD).
#include <gtest/gtest.h>

#include "kernels/cpu/vector_ops.h"

namespace tensorlightning::cpu {
namespace {

TEST(InstructionSet, IsTheOneThatTheEnvironmentNames) {
  EXPECT_STREQ(Ops().name, "scalar");
}

TEST(InstructionSet, CanBeReplacedAndPutBack) {
  const VectorOps& before = UseOps(*OpsFor(InstructionSet::kScalar));
  EXPECT_EQ(&UseOps(before), OpsFor(InstructionSet::kScalar));
}

}  // namespace
}  // namespace tensorlightning::cpu
