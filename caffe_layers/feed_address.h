// Where a feeder listens, as data_param { source: "..." } says it:
//   unix:/tmp/feed.{rank}.sock   tcp:host:7100   tcp:[fd00::5]:7100
// {rank} and {size} are this worker's.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_FEED_ADDRESS_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_FEED_ADDRESS_H_

#include <cstdint>
#include <string_view>

#include "comm/endpoint.h"
#include "kernels/result.h"

namespace tensorlightning {

// A negative rank is not known: then {rank} is an error.
Result<Endpoint> FeedAddress(std::string_view source, int32_t rank,
                             uint32_t size);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_FEED_ADDRESS_H_
