// Errors as values: a Result<T> holds either a T or an Error.
//
// Functions that can fail on bad input return one; nothing here throws. An
// Error is a code to branch on and a sentence for a person: what happened,
// where, and what to do. It is logged once, by whoever handles it.
//
//   Result<Message> message = Message::Parse(bytes, entries);
//   if (!message.ok()) return message.error();
//   DecodeAdd(*message, y, 1.0f);
#ifndef TENSORLIGHTNING_KERNELS_RESULT_H_
#define TENSORLIGHTNING_KERNELS_RESULT_H_

#include <string>
#include <utility>
#include <variant>

namespace tensorlightning {

enum class ErrorCode {
  kInvalidArgument,  // The caller's mistake: sizes, densities, capacities.
  kNotFinite,        // NaN or Inf where only numbers are allowed.
  kCorrupt,          // Bytes that no encoder of ours could have written.
  kUnavailable,      // Something this machine lacks: a device, a library.
  kIo,               // The system or the network failed; trying again may help.
  kTimedOut,         // A deadline passed.
  kRefused,          // The other side said no; trying again won't help.
};

struct Error {
  ErrorCode code;
  std::string message;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that `return value;` and `return error;` both read well.
  Result(T value) : state_(std::move(value)) {}      // NOLINT
  Result(Error error) : state_(std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  const Error& error() const { return std::get<Error>(state_); }

  T& operator*() { return std::get<T>(state_); }
  const T& operator*() const { return std::get<T>(state_); }
  T* operator->() { return &std::get<T>(state_); }
  const T* operator->() const { return &std::get<T>(state_); }

 private:
  std::variant<T, Error> state_;
};

struct Done {};
using Status = Result<Done>;

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_RESULT_H_
