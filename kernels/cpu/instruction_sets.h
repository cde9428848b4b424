// The tables that vector_ops.cc chooses from.
#ifndef TENSORLIGHTNING_KERNELS_CPU_INSTRUCTION_SETS_H_
#define TENSORLIGHTNING_KERNELS_CPU_INSTRUCTION_SETS_H_

#include "kernels/cpu/vector_ops.h"

namespace tensorlightning::cpu {

extern const VectorOps kScalarOps;
extern const VectorOps kAvx2Ops;
extern const VectorOps kAvx512Ops;

}  // namespace tensorlightning::cpu

#endif  // TENSORLIGHTNING_KERNELS_CPU_INSTRUCTION_SETS_H_
