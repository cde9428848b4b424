// Errors of ours as TensorFlow's, with the sentence unchanged.
#ifndef TENSORLIGHTNING_TF_OPS_STATUS_H_
#define TENSORLIGHTNING_TF_OPS_STATUS_H_

#include "absl/status/status.h"
#include "kernels/result.h"

namespace tensorlightning {

inline absl::Status ToTensorFlow(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFinite:
      return absl::InvalidArgumentError(error.message);
    case ErrorCode::kCorrupt:
      return absl::DataLossError(error.message);
    case ErrorCode::kTimedOut:
      return absl::DeadlineExceededError(error.message);
    case ErrorCode::kRefused:
      return absl::PermissionDeniedError(error.message);
    case ErrorCode::kUnavailable:
    case ErrorCode::kIo:
      return absl::UnavailableError(error.message);
  }
  return absl::UnknownError(error.message);
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_TF_OPS_STATUS_H_
