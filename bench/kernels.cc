// How fast the kernels are, beside what the memory allows.
//
// Every benchmark holds one kernel against its roof, a plain loop that moves
// the same bytes: see versus.h. All work on 25 million floats, or as many as
// TL_BENCH_ENTRIES says. bench/kernels.py runs this, adds numpy, and shows it.
#include <benchmark/benchmark.h>

#include <string>

#include "bench/data.h"
#include "kernels/cpu/vector_ops.h"

int main(int argc, char** argv) {
  namespace tl = tensorlightning;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
#ifdef NDEBUG
  benchmark::AddCustomContext("compiled", "-c opt");
#endif
  benchmark::AddCustomContext("instruction_set", tl::cpu::Ops().name);
  benchmark::AddCustomContext("entries", std::to_string(tl::bench::Entries()));
  tl::bench::Gradient();  // Not on the first benchmark's clock.
  benchmark::RunSpecifiedBenchmarks();
}
