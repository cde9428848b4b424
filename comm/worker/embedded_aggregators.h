// Aggregators inside a worker's process, for jobs that have none beside it.
//
// One that listens for others lives as long as the process, in the one registry
// of it: a worker may leave and join again, while the others go on.
#ifndef TENSORLIGHTNING_COMM_WORKER_EMBEDDED_AGGREGATORS_H_
#define TENSORLIGHTNING_COMM_WORKER_EMBEDDED_AGGREGATORS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/aggregator/aggregator.h"
#include "kernels/result.h"

namespace tensorlightning {

// For this process alone: `secret` becomes one that nobody else knows.
Result<std::shared_ptr<Aggregator>> EmbedForOne(Secret& secret,
                                                const std::string& job);

// For everybody who knows the secret; the same one for the same address.
Result<std::shared_ptr<Aggregator>> EmbedForAll(const std::string& listen,
                                                const Secret& secret,
                                                const std::string& job);

// Where a worker of the same process reaches it.
Endpoint ReachableEndpoint(const Aggregator& aggregator);

// Waits until all others have left those that listen for others, as long as
// they may take and nobody interrupts, and stops them.
void StopEmbeddedAggregators(std::chrono::milliseconds patience,
                             const std::function<bool()>& interrupted);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_WORKER_EMBEDDED_AGGREGATORS_H_
