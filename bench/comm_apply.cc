// What exchanges of a large model cost an aggregator, beside the kernels alone.
//
// Two workers exchange in turns with a tl-aggregator, another process, whose
// time on the processor is read from its clock. Then their pushes are applied
// once more, here, in one thread and by the kernels alone, to the same shards:
// Parse, ApplyPush, MakeReply. In the end both must have come to the same bits.
#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/comm.h"
#include "bench/comm_worker.h"
#include "bench/measure.h"
#include "comm/shards.h"
#include "kernels/exchange.h"

namespace tensorlightning::bench {
namespace {

// A push as it left a worker.
struct Push {
  size_t worker;
  uint32_t shard;
  std::vector<std::byte> code;
};

// The aggregator's half of the algorithm, and nothing else.
class Replay {
 public:
  Replay(std::span<const float> centre, const Compression& reply)
      : reply_(reply),
        centre_(centre.begin(), centre.end()),
        out_(reply.MaxBytes(kShardEntries)) {
    views_.fill(centre_);
  }

  Status Take(const Push& push) {
    const std::span<float> centre = ShardOf(centre_, push.shard);
    const std::span<float> view = ShardOf(views_[push.worker], push.shard);
    const Result<Message> message = Message::Parse(push.code, centre.size());
    if (!message.ok()) return message.error();
    Status applied = ApplyPush(*message, centre, view);
    if (!applied.ok()) return applied;
    const Result<Emitted> emitted =
        MakeReply(centre, view, reply_, workspace_, out_);
    if (!emitted.ok()) return emitted.error();
    return Done{};
  }

  std::span<const float> centre() const { return centre_; }

 private:
  // A model of one large tensor is cut every kShardEntries.
  static std::span<float> ShardOf(std::vector<float>& all, size_t shard) {
    const std::span<float> rest = std::span(all).subspan(shard * kShardEntries);
    return rest.first(std::min(rest.size(), kShardEntries));
  }

  Compression reply_;
  std::vector<float> centre_;
  std::array<std::vector<float>, std::tuple_size_v<Pair>> views_;
  Workspace workspace_;
  std::vector<std::byte> out_;
};

}  // namespace

Status Apply(Arguments arguments) {
  std::string address;
  int64_t pid = 0;
  int64_t entries = 25'000'000;
  int64_t turns = 9;
  int64_t exchanges = 4;
  Flags flags("bench/comm apply", "An aggregator beside the kernels alone.");
  flags.Add("aggregator", &address, "HOST:PORT", "of a tl-aggregator");
  flags.Add("pid", &pid, "PID", "of its process");
  flags.Add("entries", &entries, "N", "of the model");
  flags.Add("turns", &turns, "N", "how often both are measured");
  flags.Add("exchanges", &exchanges, "N", "a turn");
  Status parsed = Parse(flags, arguments);
  if (!parsed.ok()) return parsed;
  const Result<Endpoint> endpoint = Endpoint::Parse(address);
  if (!endpoint.ok()) return endpoint.error();
  clockid_t aggregator = 0;
  if (::clock_getcpuclockid(static_cast<pid_t>(pid), &aggregator) != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "--pid=" + std::to_string(pid) + " is no process"};
  }

  // Whose turn it is, and all pushes since the last replay. The clients write
  // while this thread waits for them.
  size_t turn_of = 0;
  std::vector<Push> pushes;
  ClientOptions options;
  options.aggregators = {*endpoint};
  options.on_push = [&](uint32_t shard, uint64_t,
                        std::span<const std::byte> code) {
    pushes.push_back({turn_of, shard, {code.begin(), code.end()}});
  };
  Result<Pair> pair = StartPair(options, static_cast<size_t>(entries));
  if (!pair.ok()) return pair.error();
  Replay replay(pair->front()->model(), options.policy.down);

  for (int64_t turn = -1; turn < turns; ++turn) {
    const double before = Seconds(aggregator);
    for (int64_t i = 0; i < exchanges; ++i) {
      turn_of = static_cast<size_t>(i) % pair->size();
      BenchWorker& worker = *(*pair)[turn_of];
      worker.Train();
      Status exchanged = worker.Exchange();
      if (!exchanged.ok()) return exchanged;
    }
    const double after = Seconds(aggregator);
    const double begin = Seconds(CLOCK_THREAD_CPUTIME_ID);
    for (const Push& push : pushes) {
      Status taken = replay.Take(push);
      if (!taken.ok()) return taken;
    }
    const double end = Seconds(CLOCK_THREAD_CPUTIME_ID);
    pushes.clear();
    if (turn < 0) continue;  // It touched the pages, and grew what grows.
    const auto count = static_cast<double>(exchanges);
    Output().Info("turn", {{"cpu_seconds", (after - before) / count},
                           {"kernels_cpu_seconds", (end - begin) / count}});
  }

  for (const auto& worker : *pair) {
    if (worker->counts().reconnects.load() == 0) continue;
    return Error{ErrorCode::kIo, "a connection broke: what it cost is unknown"};
  }
  const std::span<float> centre = pair->front()->model();
  Status pulled = pair->front()->client().Pull(pair->front()->tensors());
  if (!pulled.ok()) return pulled;
  if (!std::ranges::equal(centre, replay.centre())) {
    return Error{ErrorCode::kCorrupt,
                 "the kernels alone came to another centre than the "
                 "aggregator: it was not the same work"};
  }
  return Done{};
}

}  // namespace tensorlightning::bench
