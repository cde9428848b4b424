#include "comm/client/schedule.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace tensorlightning {
namespace {

// visit(value), for evenly spread entries of all tensors together.
template <typename Visit>
void EachSample(Tensors tensors, Visit visit) {
  size_t entries = 0;
  for (const std::span<float> tensor : tensors) entries += tensor.size();
  const size_t stride = std::max<size_t>(1, entries / OnChange::kSamples);
  size_t next = 0;  // In the tensor at hand.
  for (const std::span<float> tensor : tensors) {
    for (; next < tensor.size(); next += stride) visit(tensor[next]);
    next -= tensor.size();
  }
}

}  // namespace

Result<std::unique_ptr<OnChange>> OnChange::Make(Settings settings) {
  if (!(settings.share > 0.0)) {
    return Error{ErrorCode::kInvalidArgument,
                 "the change that triggers an exchange must be above 0, not " +
                     std::to_string(settings.share)};
  }
  if (settings.shortest < 1 || settings.shortest > settings.longest) {
    return Error{ErrorCode::kInvalidArgument,
                 "the shortest gap between exchanges must be from 1 to the "
                 "longest, not " +
                     std::to_string(settings.shortest) + " with a longest of " +
                     std::to_string(settings.longest)};
  }
  return std::unique_ptr<OnChange>(new OnChange(settings));
}

bool OnChange::Due(Tensors tensors, uint64_t steps) {
  steps_ += steps;
  since_ += steps;
  if (before_.empty()) Started(tensors);
  if (since_ < settings_.shortest) return false;
  if (since_ >= settings_.longest || steps_ <= settings_.warm_up) return true;
  double moved = 0.0;
  double norm = 0.0;
  size_t i = 0;
  EachSample(tensors, [&](float value) {
    const double change = double{value} - before_[i++];
    moved += change * change;
    norm += double{value} * value;
  });
  return std::sqrt(moved) >= settings_.share * std::sqrt(norm);
}

void OnChange::Started(Tensors tensors) {
  // The first call, in Due(), only remembers where the model was.
  if (!before_.empty()) since_ = 0;
  before_.clear();
  EachSample(tensors, [&](float value) { before_.push_back(value); });
}

}  // namespace tensorlightning
