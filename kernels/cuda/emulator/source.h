// A line of source, taken where a function with a parameter
// `Source here = Source::Here()` is called. (std::source_location would do, but
// clang 14, which lints us, cannot read the standard library's.)
#ifndef KERNELS_CUDA_EMULATOR_SOURCE_H_
#define KERNELS_CUDA_EMULATOR_SOURCE_H_

#include <cstring>

namespace tensorlightning::cuda::emulator {

struct Source {
  const char* file = "";
  int line = 0;

  static constexpr Source Here(const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
    return {file, line};
  }

  bool operator==(const Source& other) const {
    return line == other.line &&
           (file == other.file || std::strcmp(file, other.file) == 0);
  }
};

}  // namespace tensorlightning::cuda::emulator

#endif  // KERNELS_CUDA_EMULATOR_SOURCE_H_
