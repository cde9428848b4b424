// What a worker and its aggregator do with each other: the algorithm and its
// numbers.
//
//   elastic   push = pull = beta / p     the default
//   local     push = 1 / p, pull = 1     sparse local SGD
//   dense     elastic, unpruned          what every claim is measured against
//   gradient  gradients instead of models, with or without a barrier
//   mirror    push = 1, pull = 0         the centre follows this worker's model
//
// p is the number of live workers, and follows it. A worker that has never had
// company mirrors itself, whatever its policy: averaging with nobody must not
// change what it trains.
#ifndef TENSORLIGHTNING_COMM_CLIENT_POLICY_H_
#define TENSORLIGHTNING_COMM_CLIENT_POLICY_H_

#include <cstdint>
#include <string_view>

#include "comm/messages.h"
#include "kernels/exchange.h"
#include "kernels/result.h"

namespace tensorlightning {

struct Policy {
  Rule rule = Rule::kAverage;
  // Numerators: the coefficients are these over p, at most 1.
  double push = 0.9;
  double pull = 0.9;
  bool pull_over_p = true;  // False: pull is taken as it is.
  bool mirror = false;
  // Of a gradient rule, applied here, before pruning, instead of by the
  // optimizer: u = m u + g;  r += u;  the top of r is sent, and u cleared
  // there.
  double momentum = 0.0;

  Compression up{SelectionRule::ChunkTopK(0.01), ValueCode::kBits4};
  Compression down{SelectionRule::ChunkTopK(0.03), ValueCode::kBits4};

  static Policy Elastic(double beta = 0.9);
  static Policy Local();
  static Policy Dense(double beta = 0.9);
  static Policy Gradient(bool synchronous, double momentum = 0.0);
  static Policy Mirror();
  // "elastic", "local", "dense", "gradient", "gradient-async".
  static Result<Policy> FromName(std::string_view name);

  // The last one of several pulls as if there were two: a pull of beta toward a
  // view that only follows by what is sent would hold it back.
  Coefficients For(uint32_t live) const;
  Status Check() const;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_CLIENT_POLICY_H_
