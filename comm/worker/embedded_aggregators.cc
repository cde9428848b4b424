#include "comm/worker/embedded_aggregators.h"

#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/handshake.h"

namespace tensorlightning {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Aggregator>> by_endpoint;
};

// Never destroyed: whoever ends the process may need it.
Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

Result<std::shared_ptr<Aggregator>> Embed(const Endpoint& endpoint,
                                          const Secret& secret,
                                          const std::string& job) {
  AggregatorOptions options;
  options.listen = {endpoint};
  options.secret = secret;
  options.job = job;
  options.log = Log(2, LogLevel::kWarning);
  Result<std::unique_ptr<Aggregator>> started =
      Aggregator::Start(std::move(options));
  if (!started.ok()) return started.error();
  return std::shared_ptr<Aggregator>(std::move(*started));
}

Secret RandomSecret() {
  const Nonce nonce = MakeNonce();
  return *Secret::FromBytes(
      {reinterpret_cast<const char*>(nonce.data()), nonce.size()});
}

}  // namespace

Result<std::shared_ptr<Aggregator>> EmbedForOne(Secret& secret,
                                                const std::string& job) {
  secret = RandomSecret();
  return Embed({"127.0.0.1", 0, ""}, secret, job);
}

Result<std::shared_ptr<Aggregator>> EmbedForAll(const std::string& listen,
                                                const Secret& secret,
                                                const std::string& job) {
  const Result<Endpoint> endpoint = Endpoint::Parse(listen);
  if (!endpoint.ok()) return endpoint.error();
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto known = registry.by_endpoint.find(listen);
  if (known != registry.by_endpoint.end()) return known->second;
  Result<std::shared_ptr<Aggregator>> made = Embed(*endpoint, secret, job);
  if (made.ok()) registry.by_endpoint.emplace(listen, *made);
  return made;
}

Endpoint ReachableEndpoint(const Aggregator& aggregator) {
  Endpoint endpoint = aggregator.endpoints().front();
  // A wildcard is no address to connect to.
  if (endpoint.host == "0.0.0.0") endpoint.host = "127.0.0.1";
  if (endpoint.host == "::") endpoint.host = "::1";
  return endpoint;
}

void StopEmbeddedAggregators(std::chrono::milliseconds patience,
                             const std::function<bool()>& interrupted) {
  std::map<std::string, std::shared_ptr<Aggregator>> ours;
  {
    Registry& registry = TheRegistry();
    const std::lock_guard lock(registry.mutex);
    ours.swap(registry.by_endpoint);
  }
  const auto until = Clock::now() + patience;
  for (const auto& [endpoint, aggregator] : ours) {
    while (aggregator->totals().live > 0 && Clock::now() < until &&
           !interrupted()) {
      std::this_thread::sleep_for(kPoll);
    }
    (void)aggregator->Stop();
  }
}

}  // namespace tensorlightning
