// A bare echo on Asio, with a thread for either end: what a round trip of some
// bytes costs without us.
#ifndef TENSORLIGHTNING_BENCH_COMM_ECHO_H_
#define TENSORLIGHTNING_BENCH_COMM_ECHO_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "comm/transport/asio.h"
#include "comm/transport/listen.h"
#include "comm/transport/thread_pool.h"
#include "kernels/result.h"

namespace tensorlightning::bench {

class Echo {
 public:
  // Sends so many bytes there, and so many back.
  struct Sizes {
    size_t there;
    size_t back;
  };

  // Over loopback, connected when it returns. The calling thread is where the
  // client's is then: see StayOnCore().
  static Result<std::unique_ptr<Echo>> Start(Sizes sizes);
  ~Echo();

  // Seconds of one round trip, clocked on the client's thread.
  Result<double> Once();

 private:
  explicit Echo(Sizes sizes);
  Status Open();
  static Awaitable<void> Serve(Socket socket, Sizes sizes);

  Sizes sizes_;
  std::vector<std::byte> there_;
  std::vector<std::byte> back_;
  std::unique_ptr<ThreadPool> server_;
  std::unique_ptr<ThreadPool> client_;
  Strand strand_;
  std::shared_ptr<Listener> listener_;
  std::optional<Socket> socket_;
};

}  // namespace tensorlightning::bench

#endif  // TENSORLIGHTNING_BENCH_COMM_ECHO_H_
