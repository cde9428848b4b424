#include "comm/worker/gradient_mean.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "kernels/finite.h"

namespace tensorlightning {

GradientMean::GradientMean(const WorkerOptions& options, ElasticClient& client,
                           std::function<bool()> interrupted)
    : options_(options),
      client_(client),
      interrupted_(std::move(interrupted)) {}

Status GradientMean::Average(Tensors gradients) {
  const bool alone = client_.alone() && options_.size <= 1;
  if (alone && options_.momentum == 0.0) return Done{};
  MakeRoom(gradients);
  if (alone) {
    AccelerateAlone(gradients);
    return Done{};
  }
  return options_.policy == "gradient" ? AverageTogether(gradients)
                                       : AverageMeanwhile(gradients);
}

// Zeros at first; afterwards it only looks.
void GradientMean::MakeRoom(Tensors gradients) {
  pending_.resize(gradients.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    pending_[i].resize(gradients[i].size());
  }
}

// What remains is the momentum that the optimizer has left to us.
void GradientMean::AccelerateAlone(Tensors gradients) {
  const auto momentum = static_cast<float>(options_.momentum);
  for (size_t i = 0; i < gradients.size(); ++i) {
    std::vector<float>& velocity = pending_[i];
    for (size_t j = 0; j < velocity.size(); ++j) {
      velocity[j] = momentum * velocity[j] + gradients[i][j];
      gradients[i][j] = velocity[j];
    }
  }
}

Status GradientMean::WaitForRound() {
  Status status = client_.Wait(options_.patience());
  if (!status.ok() && status.error().code == ErrorCode::kTimedOut &&
      !interrupted_()) {
    return Error{
        ErrorCode::kTimedOut,
        "one of the " + std::to_string(client_.live()) +
            " workers did not bring its gradients: " + status.error().message};
  }
  return status;
}

Status GradientMean::AverageTogether(Tensors gradients) {
  // A call that was interrupted has left a round under way. The others have
  // applied its mean: so must this worker, with the next one.
  Status status = WaitForRound();
  if (!status.ok()) return status;
  const std::vector<std::span<float>> late(pending_.begin(), pending_.end());
  const Result<bool> left = client_.Collect(late);
  if (!left.ok()) return left.error();
  const Result<bool> started = client_.Exchange(gradients);
  if (!started.ok()) return started.error();
  status = WaitForRound();
  if (!status.ok()) return status;
  const Result<bool> collected = client_.Collect(gradients);
  if (!collected.ok()) return collected.error();
  if (!*collected) {
    const std::optional<Error> error = client_.TakeExchangeError();
    return error.has_value()
               ? *error
               : Error{ErrorCode::kIo, "the round ended without a mean"};
  }
  if (!*left) return Done{};
  for (size_t i = 0; i < gradients.size(); ++i) {
    for (size_t j = 0; j < gradients[i].size(); ++j) {
      gradients[i][j] += std::exchange(pending_[i][j], 0.0f);
    }
  }
  return Done{};
}

// What can't be sent now is owed.
Status GradientMean::AverageMeanwhile(Tensors gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    Status finite = CheckFinite(gradients[i], "the gradient", kUsableBits);
    if (!finite.ok()) return finite;
    for (size_t j = 0; j < gradients[i].size(); ++j) {
      pending_[i][j] += std::exchange(gradients[i][j], 0.0f);
    }
  }
  // First this: what ends after it is collected by the next call.
  const bool busy = client_.busy();
  const Result<bool> collected = client_.Collect(gradients);
  if (!collected.ok()) return collected.error();
  if (busy) return Done{};
  std::vector<std::span<float>> owed(pending_.begin(), pending_.end());
  const Result<bool> started = client_.Exchange(owed);
  if (!started.ok()) return started.error();
  if (*started) {
    for (std::vector<float>& part : pending_) {
      std::fill(part.begin(), part.end(), 0.0f);
    }
  }
  return Done{};
}

}  // namespace tensorlightning
