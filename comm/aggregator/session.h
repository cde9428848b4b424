// The aggregator's side of one connection: greets, admits, and answers frames
// one after another, on a strand of its own. See PROTOCOL.md.
#ifndef TENSORLIGHTNING_COMM_AGGREGATOR_SESSION_H_
#define TENSORLIGHTNING_COMM_AGGREGATOR_SESSION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/aggregator/centre.h"
#include "comm/aggregator/members.h"
#include "comm/handshake.h"
#include "comm/transport/channel.h"

namespace tensorlightning {

class Service;

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Service& service, std::shared_ptr<Channel> channel);

  // Until the connection ends.
  static Awaitable<void> Run(std::shared_ptr<Session> self);

  // Tells the worker why, if it listens, and ends the connection. From any
  // strand. When it has returned, nothing of the worker's views and replies is
  // being read any more.
  Awaitable<void> Shut(WireError code, std::string why);
  // The same, not waiting for it.
  void End(WireError code, const std::string& why);

  // A reply that had to wait is ready. From any strand.
  void Deliver(uint32_t shard, const CentreShard::Reply& reply);

  // Tells the worker how many there are now. From any strand.
  void Announce();

  const std::string& peer() const { return channel_->peer(); }
  // None before it has joined.
  const std::shared_ptr<Member>& member() const { return member_; }

 private:
  Awaitable<Status> Converse();
  Awaitable<Status> Greet();
  Awaitable<Status> Admit();
  Awaitable<Status> Serve();
  Awaitable<Status> Handle(const FrameHeader& header);
  Awaitable<Status> OnInit(const FrameHeader& header);
  Awaitable<Status> OnPull(const FrameHeader& header);
  Awaitable<Status> OnPush(const FrameHeader& header);
  Awaitable<Status> OnDigest(const FrameHeader& header);
  Status OnPing();
  Status CheckHeader(const FrameHeader& header) const;
  Awaitable<void> UntilAnswered(const FrameHeader& header);

  void CountTraffic();
  Status Complain(WireError code, Error error);
  void SendCopy(uint32_t shard, const CentreShard::Reply& reply,
                const Bytes& code);
  void SendReply(uint32_t shard, const CentreShard::Reply& reply);
  std::array<std::byte, Standing::kBytes> Stamp(Standing standing) const;
  FrameHeader Header(FrameType type, uint32_t shard = 0,
                     uint64_t sequence = 0) const;
  // Room for `bytes` bytes, floats if need be.
  std::span<std::byte> Payload(size_t bytes);

  Service& front_;    // Where it came in.
  Service* service_;  // The one of its job.
  std::shared_ptr<Channel> channel_;
  AggregatorHandshake handshake_;
  bool joined_ = false;  // And has been told so: others may send it frames.
  std::shared_ptr<Member> member_;
  std::shared_ptr<Centre> centre_;
  Compression reply_{SelectionRule::ChunkTopK(1.0), ValueCode::kFloat32};
  std::vector<float> payload_;
  // By served shard: an answer with borrowed memory is on its way.
  std::vector<bool> sending_;
  bool pong_queued_ = false;
  uint64_t counted_in_ = 0;
  uint64_t counted_out_ = 0;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_AGGREGATOR_SESSION_H_
