// What an ElasticClient does on comm's threads: links to the aggregator's
// processes, and of every shard how far its exchange is. All on one strand, but
// for what is marked.
//
//              Pull sent          State             Step, Push sent
//   kUnsynced ---------> kPulling -----> kReady ----------------------> kPushed
//       ^                   ^              ^                               |
//       |                   +--------------|------ Resync, Refused --------+
//       +-- NoCentre (rank 0 brings it)    +------ Reply ------------------+
//
// A lost connection changes nothing of that; on the next one, pulls and pushes
// under way are simply sent again.
#ifndef TENSORLIGHTNING_COMM_CLIENT_CLIENT_CORE_H_
#define TENSORLIGHTNING_COMM_CLIENT_CLIENT_CORE_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/client/elastic_client.h"
#include "comm/client/open_link.h"
#include "comm/client/worker_shard.h"
#include "comm/shards.h"
#include "comm/transport/thread_pool.h"

namespace tensorlightning {

class ClientCore : public std::enable_shared_from_this<ClientCore> {
 public:
  // `weights`: what rank 0 brings if the aggregator has nothing, in wire order.
  ClientCore(ClientOptions options, Layout layout, std::vector<float> weights,
             ThreadPool& pool);

  // ---- From the caller's thread. --------------------------------------------

  void Begin();
  // Leaves and ends all coroutines; true once they have ended.
  bool End(std::chrono::milliseconds patience);

  const ShardMap& map() const { return map_; }
  const ClientOptions& options() const { return options_; }
  ClientCounts& counts() { return counts_; }
  uint32_t rank() const { return static_cast<uint32_t>(rank_.load()); }
  uint32_t live() const { return live_.load(std::memory_order_relaxed); }
  uint32_t most_live() const {
    return most_live_.load(std::memory_order_relaxed);
  }

  // Live workers, for the policy; 0: there has never been another.
  uint32_t company() const {
    return alone() ? 0 : std::max<uint32_t>(live(), 1);
  }
  // Whether there has never been another worker.
  bool alone() const { return most_live() <= 1; }
  void MeetOthers() { HearOf(2); }

  // Pushes that the centre had seen when this worker first heard of it; of the
  // shard that had seen the most.
  uint64_t first_version() const { return first_version_.load(); }

  // The failure that ended it for good, if any.
  std::optional<Error> failure() const;

  // Memory that caller and comm hand to each other, in wire order. The caller
  // may touch it while !busy(), and while a correction waits.
  std::span<float> staging() { return staging_; }
  bool busy() const { return busy_.load(std::memory_order_acquire); }
  // Starts an exchange of what is staged. !busy() and no correction waiting.
  // `everything`: it, and all after it, are not pruned.
  void StartExchange(bool everything);
  bool correction_waiting() const {
    return correction_.load(std::memory_order_acquire);
  }
  void CorrectionTaken() {
    correction_.store(false, std::memory_order_release);
  }
  // The error of the last exchange's own making (NaN in the model), once.
  std::optional<Error> TakeExchangeError();

  // Each waits as long as options().patience and returns what it got.
  Status WaitUntilSynced(std::chrono::milliseconds patience);
  Status WaitUntilIdle(std::chrono::milliseconds patience);
  Status PullAll();
  Result<bool> CompareDigests();
  Result<std::string> AskStatus();
  // Copies the view into the staging. !busy().
  Status StageView();
  void CutConnections();

 private:
  enum class Phase { kUnsynced, kPulling, kReady, kPushed };

  struct Kept {
    uint64_t sequence;
    Bytes code;
  };

  struct ShardLine {
    std::unique_ptr<WorkerShard> worker;
    size_t link = kNoLink;
    Phase phase = Phase::kUnsynced;
    bool loaded = false;       // Has had a view.
    bool in_exchange = false;  // Its answer is still to come.
    bool sending = false;      // The push is being written.
    uint32_t reply_live = 1;   // Workers, when last heard.
    uint64_t next = 1;         // The next push's number.
    uint64_t version = 0;      // The centre's, when last heard.
    std::deque<Kept> kept;     // Sent, and not known to be safe.
    std::vector<Bytes> spare;  // Memory of pushes that are safe.
    std::chrono::steady_clock::time_point queued;
  };

  struct Link {
    explicit Link(const Strand& strand) : cancel(strand), rest(strand) {}

    size_t index = 0;
    Endpoint endpoint;
    asio::steady_timer cancel;  // Ends connecting, or the connection.
    asio::steady_timer rest;    // Between two attempts.
    std::shared_ptr<Channel> channel;
    uint64_t incarnation = 0;
    std::chrono::milliseconds lease{0};
    std::chrono::steady_clock::time_point last_sent;
    uint64_t counted_sent = 0;
    uint64_t counted_received = 0;
    std::vector<float> payload;  // What is being read.
    bool useful = false;         // This connection has brought something.
  };

  // A question to the aggregator, one at a time.
  struct Question {
    FrameType type = FrameType::kStatus;
    size_t open = 0;  // Answers still to come.
    bool agree = true;
    std::string text;
    std::optional<Error> error;
  };

  static constexpr size_t kNoLink = SIZE_MAX;

  // client_core.cc
  template <typename Work>
  Status RunAndWait(Work work);
  Status WaitFor(const char* what, std::chrono::milliseconds patience,
                 const std::atomic<bool>& flag, bool wanted);
  Result<Question> Ask(FrameType type);
  Result<Question> AskOnce(FrameType type);
  void SendQuestion(FrameType type);
  void AnswerOne(FrameType type);
  void BreakQuestion(const std::string& why);
  void Notify();
  void Fail(Error error);
  void SetLive(uint32_t live);
  void HearOf(uint32_t live);

  // client_links.cc
  void Spawn(Awaitable<void> coroutine);
  Awaitable<void> RunLink(Link& link);
  Awaitable<Result<OpenedLink>> Open(Link& link);
  Awaitable<void> RunTicker();
  Awaitable<Status> Converse(Link& link, const OpenedLink& opened);
  Awaitable<Status> Handle(Link& link, const FrameHeader& header);
  Status Dispatch(Link& link, const FrameHeader& header,
                  std::span<const std::byte> payload);
  Result<size_t> PayloadLimit(const Link& link,
                              const FrameHeader& header) const;
  Status TakeShards(Link& link, const Joined& joined);
  void Disconnected(Link& link, const Error& why);
  void CountTraffic(Link& link);
  FrameHeader Header(FrameType type, uint32_t shard = 0,
                     uint64_t sequence = 0) const;
  Channel* ChannelOf(const ShardLine& line) const;

  // client_exchange.cc
  Awaitable<void> RunExchange();
  void SendEverything();
  Awaitable<bool> PrepareRound();
  void PushAgain(ShardLine& line, uint32_t shard);
  void SendPush(ShardLine& line, uint32_t shard);
  void SendPull(ShardLine& line, uint32_t shard);
  void BringWeights(ShardLine& line, uint32_t shard);
  Status OnState(uint32_t shard, uint64_t applied,
                 std::span<const std::byte> payload);
  Status OnReply(uint32_t shard, uint64_t sequence,
                 std::span<const std::byte> payload);
  void OnRefused(uint32_t shard, uint64_t sequence,
                 std::span<const std::byte> payload);
  Status OnDigest(uint32_t shard, uint64_t applied,
                  std::span<const std::byte> payload);
  void OweAgain(ShardLine& line, uint32_t shard, uint64_t applied);
  void ForgetUpTo(ShardLine& line, uint64_t durable);
  void Keep(ShardLine& line, uint64_t sequence,
            std::span<const std::byte> code);
  void Recycle(ShardLine& line, Kept& kept);
  void Answered(ShardLine& line);
  void FinishIfDone();
  std::span<float> Staged(uint32_t shard);

  const ClientOptions options_;
  const Layout layout_;
  const ShardMap map_;
  ThreadPool& pool_;
  Strand strand_;

  std::vector<ShardLine> lines_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<float> weights_;  // Until all is synced for the first time.
  Bytes layout_bytes_;
  asio::steady_timer tick_;
  asio::steady_timer round_;
  std::vector<std::byte> push_;
  size_t kept_bytes_ = 0;

  bool computing_ = false;
  size_t waiting_ = 0;  // Pushes without an answer.
  size_t unsynced_ = 0;
  uint64_t steps_at_start_ = 0;
  std::chrono::steady_clock::time_point exchange_start_;
  std::vector<float> digest_view_;

  // Both threads'.
  std::vector<float> staging_;
  std::atomic<bool> busy_{false};
  std::atomic<bool> correction_{false};
  std::atomic<bool> synced_{false};
  std::atomic<bool> answered_{true};
  std::atomic<bool> ended_{false};
  std::atomic<bool> closing_{false};
  std::atomic<bool> failed_{false};
  std::atomic<int64_t> rank_{0};
  std::atomic<bool> has_rank_{false};
  std::atomic<uint32_t> live_{1};
  std::atomic<uint32_t> most_live_{1};
  std::atomic<uint64_t> first_version_{0};
  std::atomic<int> coroutines_{0};
  ClientCounts counts_;

  mutable std::mutex mutex_;  // For waiting, and for what is below.
  std::condition_variable changed_;
  std::optional<Error> failure_;
  std::optional<Error> exchange_error_;
  std::string trouble_ = "it has not connected yet";
  Question question_;  // The strand's while !answered_.
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_CLIENT_CLIENT_CORE_H_
