#include "kernels/cpu/vector_ops.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "kernels/cpu/instruction_sets.h"

namespace tensorlightning::cpu {
namespace {

const VectorOps* Choose() {
  const char* const wanted = std::getenv("TL_INSTRUCTION_SET");
  const VectorOps* best = &kScalarOps;
  for (const auto set : {InstructionSet::kScalar, InstructionSet::kAvx2,
                         InstructionSet::kAvx512}) {
    const VectorOps* const ops = OpsFor(set);
    if (ops == nullptr) continue;
    best = ops;
    if (wanted != nullptr && std::string_view(wanted) == ops->name) break;
  }
  if (wanted != nullptr && std::string_view(wanted) != best->name) {
    std::fprintf(stderr,
                 "tensorlightning: TL_INSTRUCTION_SET=%s is not to be had here "
                 "(scalar, avx2 and avx512 are known); using %s\n",
                 wanted, best->name);
  }
  return best;
}

std::atomic<const VectorOps*>& Chosen() {
  static std::atomic<const VectorOps*> chosen{Choose()};
  return chosen;
}

}  // namespace

const VectorOps* OpsFor(InstructionSet set) {
  switch (set) {
    case InstructionSet::kScalar:
      return &kScalarOps;
    case InstructionSet::kAvx2:
      return __builtin_cpu_supports("avx2") ? &kAvx2Ops : nullptr;
    case InstructionSet::kAvx512:
      return __builtin_cpu_supports("avx512f") &&
                     __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512vl")
                 ? &kAvx512Ops
                 : nullptr;
  }
  return nullptr;
}

const VectorOps& Ops() { return *Chosen().load(std::memory_order_relaxed); }

const VectorOps& UseOps(const VectorOps& ops) {
  return *Chosen().exchange(&ops);
}

}  // namespace tensorlightning::cpu
