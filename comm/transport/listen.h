// Where an aggregator waits for workers.
#ifndef TENSORLIGHTNING_COMM_TRANSPORT_LISTEN_H_
#define TENSORLIGHTNING_COMM_TRANSPORT_LISTEN_H_

#include <functional>
#include <memory>
#include <string>

#include "comm/endpoint.h"
#include "comm/transport/asio.h"
#include "comm/transport/thread_pool.h"
#include "kernels/result.h"

namespace tensorlightning {

// Accepts connections, each on a strand of its own, until it is closed or
// dies. A Unix socket's file is removed at the end.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  using Accepted = std::function<void(const Strand&, Socket)>;

  // An error names the endpoint and says why it can't be listened on. The
  // callback runs on a thread of the pool, one at a time.
  static Result<std::shared_ptr<Listener>> Open(ThreadPool& pool,
                                                const Endpoint& endpoint,
                                                const std::string& congestion,
                                                Accepted accepted);
  ~Listener();

  // With the port that the system has chosen, if 0 was asked for.
  const Endpoint& endpoint() const { return endpoint_; }

  // From any thread; the callback may still be running.
  void Close();

 private:
  using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

  Listener(ThreadPool& pool, Endpoint endpoint, std::string congestion,
           Accepted accepted);
  static Awaitable<void> Run(std::shared_ptr<Listener> self);

  ThreadPool& pool_;
  Strand strand_;
  Endpoint endpoint_;
  std::string congestion_;
  Accepted accepted_;
  Acceptor acceptor_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TRANSPORT_LISTEN_H_
