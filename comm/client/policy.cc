#include "comm/client/policy.h"

#include <algorithm>
#include <string>

namespace tensorlightning {

Policy Policy::Elastic(double beta) {
  Policy policy;
  policy.push = policy.pull = beta;
  return policy;
}

Policy Policy::Local() {
  Policy policy;
  policy.push = policy.pull = 1.0;
  policy.pull_over_p = false;
  return policy;
}

Policy Policy::Dense(double beta) {
  Policy policy = Elastic(beta);
  policy.up =
      policy.down = {SelectionRule::ChunkTopK(1.0), ValueCode::kFloat32};
  return policy;
}

Policy Policy::Mirror() {
  Policy policy;
  policy.mirror = true;
  return policy;
}

Policy Policy::Gradient(bool synchronous, double momentum) {
  Policy policy;
  policy.momentum = momentum;
  policy.rule = synchronous ? Rule::kGradientSync : Rule::kGradientAsync;
  return policy;
}

Result<Policy> Policy::FromName(std::string_view name) {
  if (name == "elastic") return Elastic();
  if (name == "local") return Local();
  if (name == "dense") return Dense();
  if (name == "gradient") return Gradient(true);
  if (name == "gradient-async") return Gradient(false);
  return Error{ErrorCode::kInvalidArgument,
               "there is no policy '" + std::string(name) +
                   "'; there are elastic, local, dense, gradient and "
                   "gradient-async"};
}

Coefficients Policy::For(uint32_t live) const {
  const double p = std::max<uint32_t>(live, pull_over_p ? 2 : 1);
  const auto share = [](double value) {
    return static_cast<float>(std::min(value, 1.0));
  };
  return {share(push / p), share(pull_over_p ? pull / p : pull)};
}

Status Policy::Check() const {
  // Written so that NaN is none.
  const auto is_share = [](double v) { return v >= 0.0 && v <= 1.0; };
  if (!is_share(push) || !is_share(pull)) {
    return Error{ErrorCode::kInvalidArgument,
                 "push and pull must be from 0 to 1, not " +
                     std::to_string(push) + " and " + std::to_string(pull)};
  }
  const bool slows_down = momentum >= 0.0 && momentum < 1.0;
  if (!slows_down) {
    return Error{ErrorCode::kInvalidArgument,
                 "the momentum must be from 0 to below 1, not " +
                     std::to_string(momentum)};
  }
  for (const Compression& compression : {up, down}) {
    if (compression.rule.kind != SelectionRule::Kind::kChunkTopK) {
      return Error{ErrorCode::kInvalidArgument,
                   "only chunk-wise top-k travels between machines"};
    }
    Status status = compression.Check(1);
    if (!status.ok()) return status;
  }
  return Done{};
}

}  // namespace tensorlightning
