// From an endpoint to a connection on which the worker has joined.
#ifndef TENSORLIGHTNING_COMM_CLIENT_OPEN_LINK_H_
#define TENSORLIGHTNING_COMM_CLIENT_OPEN_LINK_H_

#include <memory>
#include <string>

#include "comm/endpoint.h"
#include "comm/messages.h"
#include "comm/secret.h"
#include "comm/transport/channel.h"
#include "comm/transport/timeouts.h"
#include "comm/transport/tls.h"
#include "comm/transport/watchdog.h"
#include "kernels/result.h"

namespace tensorlightning {

struct LinkSettings {
  Endpoint endpoint;
  const Secret& secret;
  TlsContext tls;
  Timeouts timeouts;
  std::string congestion;
  size_t queue;  // Frames that may wait to be written.
};

struct OpenedLink {
  std::shared_ptr<Channel> channel;
  Joined joined;
};

// kRefused: the aggregator will never take this worker; anything else may pass.
// Cancelling the timer ends it early.
Awaitable<Result<OpenedLink>> OpenLink(Strand strand, Watchdog& watchdog,
                                       const LinkSettings& settings,
                                       const Hello& hello, const Join& join,
                                       asio::steady_timer& cancel);

// What an aggregator's kError means.
Error ErrorOf(const Complaint& complaint, const std::string& peer);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_CLIENT_OPEN_LINK_H_
