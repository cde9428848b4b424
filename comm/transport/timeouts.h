// How long anything may take. There is no wait without one of these.
#ifndef TENSORLIGHTNING_COMM_TRANSPORT_TIMEOUTS_H_
#define TENSORLIGHTNING_COMM_TRANSPORT_TIMEOUTS_H_

#include <chrono>

namespace tensorlightning {

struct Timeouts {
  // Until a socket is connected. (The system's resolver of names has time-outs
  // of its own, and can't be interrupted.)
  std::chrono::milliseconds connect{10'000};
  // From there until the peer is known, TLS included.
  std::chrono::milliseconds handshake{10'000};
  // Between two bytes while some are due: of a frame that has begun, or of one
  // that the other end does not read.
  std::chrono::milliseconds progress{30'000};
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TRANSPORT_TIMEOUTS_H_
