// The round trip of a small exchange beside that of a bare echo.
//
//   caller's thread      client's thread            server's thread
//   Exchange, Wait  ---> push ------ loopback ----> Aggregator: apply, reply
//                        into the view <-----------
//   Once            ---> write ----- loopback ----> read
//                        read <-------------------- write
//
// Both are clocked on the client's thread, from the first byte to what is done
// with the last one, and carry as many bytes each way. Medians: a trip during
// which others got the core says nothing.
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bench/comm.h"
#include "bench/comm_echo.h"
#include "bench/comm_run.h"
#include "bench/comm_worker.h"
#include "bench/measure.h"
#include "comm/aggregator/aggregator.h"

namespace tensorlightning::bench {
namespace {

// Seconds of one exchange's round trip.
Result<double> Exchange(BenchWorker& worker) {
  worker.Train();
  const std::chrono::duration<double> before =
      worker.counts().round_trip.Total();
  const Status status = worker.Exchange();
  if (!status.ok()) return status.error();
  const std::chrono::duration<double> after =
      worker.counts().round_trip.Total();
  return (after - before).count();
}

// The median of so many.
template <typename Function>
Result<double> MedianOf(int64_t trips, Function function) {
  std::vector<double> seconds;
  for (int64_t i = 0; i < trips; ++i) {
    const Result<double> one = function(i);
    if (!one.ok()) return one.error();
    seconds.push_back(*one);
  }
  return Median(std::move(seconds));
}

}  // namespace

Status RoundTrip(Arguments arguments) {
  int64_t turns = 100;
  int64_t trips = 100;
  int64_t entries = 220;
  Flags flags("bench/comm round-trip", "A small exchange beside an echo.");
  flags.Add("turns", &turns, "N", "how often both are measured");
  flags.Add("trips", &trips, "N", "round trips of each a turn");
  flags.Add("entries", &entries, "N",
            "of the model, two bytes each way for each");
  Status parsed = Parse(flags, arguments);
  if (!parsed.ok()) return parsed;

  StayOnCore(kServerCore);
  AggregatorOptions options;
  options.listen = {{"127.0.0.1", 0, ""}};
  options.threads = 1;
  options.log = Log(2, LogLevel::kWarning);
  const Result<std::unique_ptr<Aggregator>> aggregator =
      Aggregator::Start(std::move(options));
  if (!aggregator.ok()) return aggregator.error();
  StayOnCore(kClientCore);
  ClientOptions client;
  client.aggregators = (*aggregator)->endpoints();
  Result<Pair> pair = StartPair(client, static_cast<size_t>(entries));
  if (!pair.ok()) return pair.error();

  const auto exchange = [&](int64_t i) {
    return Exchange(*(*pair)[static_cast<size_t>(i) % pair->size()]);
  };

  // The first ones warm up, and tell what an echo of them must carry.
  const ClientCounts& counts = pair->front()->counts();
  const uint64_t sent = counts.bytes_sent.load();
  const uint64_t received = counts.bytes_received.load();
  const Result<double> warmed_up = MedianOf(trips, exchange);
  if (!warmed_up.ok()) return warmed_up.error();
  const Echo::Sizes sizes{
      (counts.bytes_sent.load() - sent) / counts.pushes.load(),
      (counts.bytes_received.load() - received) / counts.pushes.load()};
  const Result<std::unique_ptr<Echo>> echo = Echo::Start(sizes);
  if (!echo.ok()) return echo.error();
  for (int64_t turn = 0; turn < turns; ++turn) {
    const Result<double> echoed =
        MedianOf(trips, [&](int64_t) { return (*echo)->Once(); });
    if (!echoed.ok()) return echoed.error();
    const Result<double> exchanged = MedianOf(trips, exchange);
    if (!exchanged.ok()) return exchanged.error();
    Output().Info("turn", {{"bytes_there", sizes.there},
                           {"bytes_back", sizes.back},
                           {"seconds", *exchanged},
                           {"echo_seconds", *echoed}});
  }
  return Done{};
}

}  // namespace tensorlightning::bench
