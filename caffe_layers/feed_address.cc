#include "caffe_layers/feed_address.h"

#include <string>

namespace tensorlightning {
namespace {

constexpr std::string_view kTcp = "tcp:";
constexpr std::string_view kUnix = "unix:";

Error Bad(std::string_view source, const std::string& why) {
  return {ErrorCode::kInvalidArgument,
          "source: \"" + std::string(source) + "\": " + why};
}

Result<std::string> Filled(std::string_view source, int32_t rank,
                           uint32_t size) {
  std::string filled;
  std::string_view rest = source;
  while (!rest.empty()) {
    const size_t open = rest.find('{');
    filled += rest.substr(0, open);
    if (open == std::string_view::npos) break;
    rest.remove_prefix(open);
    const std::string_view name = rest.substr(0, rest.find('}') + 1);
    if (name == "{rank}" && rank < 0) {
      return Bad(source, "TL_RANK does not say this worker's rank");
    }
    if (name == "{rank}") {
      filled += std::to_string(rank);
    } else if (name == "{size}") {
      filled += std::to_string(size);
    } else {
      return Bad(source, "there are {rank} and {size}, and no other brackets");
    }
    rest.remove_prefix(name.size());
  }
  return filled;
}

}  // namespace

Result<Endpoint> FeedAddress(std::string_view source, int32_t rank,
                             uint32_t size) {
  const Result<std::string> filled = Filled(source, rank, size);
  if (!filled.ok()) return filled.error();
  std::string_view rest = *filled;
  const bool is_tcp = rest.starts_with(kTcp);
  if (!is_tcp && !rest.starts_with(kUnix)) {
    return Bad(source,
               "a feeder's address is unix:/path or tcp:host:port, with "
               "{rank} and {size} where wanted");
  }
  if (is_tcp) rest.remove_prefix(kTcp.size());
  Result<Endpoint> endpoint = Endpoint::Parse(rest);
  if (!endpoint.ok()) return Bad(source, endpoint.error().message);
  if (endpoint->is_unix() == is_tcp || endpoint->ToString() != rest) {
    return Bad(source, "it is written tcp:host:port");
  }
  return endpoint;
}

}  // namespace tensorlightning
