// How the plugin ends when something is wrong. The stock binary: with a
// sentence and exit status 1, not the core dump and stack trace of a failed
// CHECK. In somebody else's process the driver throws the sentence instead: see
// SetEnding.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_ENDING_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_ENDING_H_

#include <string>

#include "kernels/result.h"

namespace tensorlightning {

[[noreturn]] void EndWith(const std::string& reason);

// What EndWith() does from now on, in all threads. Throws, or does not return.
using Ending = void (*)(const std::string& reason);
void SetEnding(Ending ending);

inline void EndUnless(const Status& status) {
  if (!status.ok()) EndWith(status.error().message);
}

template <typename T>
T ValueOrEnd(Result<T> result) {
  if (!result.ok()) EndWith(result.error().message);
  return std::move(*result);
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_ENDING_H_
