// When to exchange.
//
//   Every(10)           after every tenth step
//   OnChange(...)       when the model has moved far enough from where it was
//                       at the last exchange: the norm of the difference, not
//                       the difference of norms, which misses rotation
//
// Whatever the schedule says, the next exchange waits for the one before.
#ifndef TENSORLIGHTNING_COMM_CLIENT_SCHEDULE_H_
#define TENSORLIGHTNING_COMM_CLIENT_SCHEDULE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/result.h"

namespace tensorlightning {

using Tensors = std::span<const std::span<float>>;

// On the caller's thread.
class Schedule {
 public:
  virtual ~Schedule() = default;
  // So many steps after the last call: whether it is time.
  virtual bool Due(Tensors tensors, uint64_t steps) = 0;
  // An exchange has begun.
  virtual void Started(Tensors tensors) = 0;
};

class Every final : public Schedule {
 public:
  explicit Every(uint64_t steps) : steps_(steps) {}

  bool Due(Tensors, uint64_t steps) override {
    return (since_ += steps) >= steps_;
  }
  void Started(Tensors) override { since_ = 0; }

 private:
  uint64_t steps_;
  uint64_t since_ = 0;
};

// The norms are estimated from up to kSamples entries, evenly spread: a step
// pays microseconds, however large the model is.
class OnChange final : public Schedule {
 public:
  static constexpr size_t kSamples = 65'536;

  struct Settings {
    double share = 0.01;  // Of the model's norm.
    uint64_t shortest = 4;
    uint64_t longest = 64;
    uint64_t warm_up = 0;  // Steps at the start with the shortest gap.
  };
  // An error unless 0 < share and 1 <= shortest <= longest.
  static Result<std::unique_ptr<OnChange>> Make(Settings settings);

  bool Due(Tensors tensors, uint64_t steps) override;
  void Started(Tensors tensors) override;

 private:
  explicit OnChange(Settings settings) : settings_(settings) {}

  Settings settings_;
  uint64_t steps_ = 0;
  uint64_t since_ = 0;
  std::vector<float> before_;  // The samples at the last exchange.
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_CLIENT_SCHEDULE_H_
