// Where an aggregator listens, as people write it:
//   host:7070   10.0.0.5:7070   [fd00::5]:7070   unix:/run/tl.sock   host
// TL_AGGREGATOR holds one, or several separated by commas when the aggregator
// is spread over processes.
#ifndef TENSORLIGHTNING_COMM_ENDPOINT_H_
#define TENSORLIGHTNING_COMM_ENDPOINT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.h"

namespace tensorlightning {

inline constexpr uint16_t kDefaultPort = 7070;

struct Endpoint {
  std::string host;  // Name or address without brackets; empty for Unix.
  uint16_t port = 0;
  std::string unix_path;  // Empty for TCP.

  bool is_unix() const { return !unix_path.empty(); }
  // As it is written, brackets and all.
  std::string ToString() const;
  // Whether only this machine can reach it: Unix, localhost, 127/8, ::1.
  bool IsLoopback() const;

  // Errors say what is wrong with the text: an empty host, a port that is no
  // number from 0 to 65535, a path longer than Unix sockets take, an IPv6
  // address without brackets and with a doubtful port.
  static Result<Endpoint> Parse(std::string_view text);
  // Separated by commas; at least one.
  static Result<std::vector<Endpoint>> ParseList(std::string_view text);

  bool operator==(const Endpoint&) const = default;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_ENDPOINT_H_
