// ClientCore's connections.

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "comm/client/client_core.h"
#include "comm/handshake.h"

namespace tensorlightning {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSpareQueue = 16;
constexpr size_t kMaxStatusBytes = size_t{4} << 20;
constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::milliseconds kFirstRest{50};
constexpr std::chrono::milliseconds kLongestRest{2'000};

// "host:pid"
std::string NameOfThisProcess() {
  std::string host(kMaxIdBytes, '\0');
  if (::gethostname(host.data(), host.size()) != 0) host = "unknown";
  host.resize(std::min(host.find('\0'), kMaxIdBytes - 12));
  return host + ":" + std::to_string(::getpid());
}

bool AnswersPush(FrameType type) {
  return type == FrameType::kReply || type == FrameType::kRefused ||
         type == FrameType::kResync || type == FrameType::kState;
}

bool IsFinal(const Error& error) {
  return error.code == ErrorCode::kRefused ||
         error.code == ErrorCode::kInvalidArgument;
}

}  // namespace

void ClientCore::Spawn(Awaitable<void> coroutine) {
  coroutines_.fetch_add(1);
  asio::co_spawn(strand_, std::move(coroutine),
                 [self = shared_from_this()](const std::exception_ptr& error) {
                   if (error != nullptr) {
                     self->Fail({ErrorCode::kIo,
                                 "an exchange ended by an exception: out of "
                                 "memory?"});
                   }
                   // Not for each: the caller may wait for the reply to a push
                   // whose coroutine has just ended, and would wake in vain.
                   if (self->coroutines_.fetch_sub(1) == 1) self->Notify();
                 });
}

FrameHeader ClientCore::Header(FrameType type, uint32_t shard,
                               uint64_t sequence) const {
  FrameHeader header{type};
  header.shard = shard;
  header.sequence = sequence;
  header.fingerprint = layout_.short_fingerprint();
  return header;
}

// None when there is no connection.
Channel* ClientCore::ChannelOf(const ShardLine& line) const {
  if (line.link == kNoLink) return nullptr;
  Channel* channel = links_[line.link]->channel.get();
  return channel == nullptr || channel->closed() ? nullptr : channel;
}

Awaitable<Result<OpenedLink>> ClientCore::Open(Link& link) {
  Hello hello;
  hello.nonce = MakeNonce();
  hello.fingerprint = layout_.fingerprint();
  hello.attempt = options_.attempt;
  hello.rank = has_rank_ ? static_cast<int32_t>(rank_) : options_.rank;
  hello.job = options_.job;
  hello.name = NameOfThisProcess();
  Join join;
  join.rule = options_.policy.rule;
  join.reply = options_.policy.down;
  join.incarnation = link.incarnation;
  join.layout = layout_bytes_;
  // Who brings the first weights sends two frames for every shard, init and
  // pull, faster than they leave.
  const size_t queue = 2 * lines_.size() + kSpareQueue;
  const LinkSettings settings{link.endpoint,       options_.secret,
                              options_.tls,        options_.timeouts,
                              options_.congestion, queue};
  Result<OpenedLink> opened = co_await OpenLink(
      strand_, pool_.watchdog(), settings, hello, join, link.cancel);
  co_return opened;
}

Awaitable<void> ClientCore::RunLink(Link& link) {
  Clock::time_point down_since = Clock::now();
  std::chrono::milliseconds rest = kFirstRest;
  while (!closing_ && !failed_) {
    // The first process gives the rank, the others hear of it.
    if (link.index == 0 || has_rank_) {
      const Result<OpenedLink> opened = co_await Open(link);
      if (closing_) break;
      Error why{ErrorCode::kIo, ""};
      if (opened.ok()) {
        const Status ended = co_await Converse(link, *opened);
        why = ended.error();
        Disconnected(link, why);
        // One that opens, and fails each time, is as good as none.
        if (link.useful) {
          down_since = Clock::now();
          rest = kFirstRest;
        }
      } else {
        why = opened.error();
      }
      if (closing_) break;
      if (IsFinal(why)) {
        Fail(why);
        break;
      }
      if (Clock::now() - down_since > options_.give_up) {
        Fail({ErrorCode::kTimedOut,
              "no aggregator at " + link.endpoint.ToString() + " for " +
                  std::to_string(options_.give_up.count() / 1000) +
                  " s; at last: " + why.message});
        break;
      }
      bool news = false;
      {
        const std::lock_guard lock(mutex_);
        news = trouble_ != why.message;
        trouble_ = why.message;
      }
      // Said once: whoever starts many workers at once starts some too early.
      if (news) {
        options_.log.Warning("connecting again", {{"reason", why.message}});
      }
    }
    SysError error;
    link.rest.expires_after(rest);
    co_await link.rest.async_wait(Into(error));
    rest = std::min(rest * 2, kLongestRest);
  }
}

Status ClientCore::TakeShards(Link& link, const Joined& joined) {
  if (joined.end_shard > lines_.size() ||
      joined.first_shard >= joined.end_shard) {
    return Error{ErrorCode::kCorrupt, "an impossible range of shards"};
  }
  const ShardRange range{joined.first_shard, joined.end_shard};
  for (uint32_t i = 0; i < lines_.size(); ++i) {
    size_t& owner = lines_[i].link;
    const bool here = range.Contains(i);
    if ((here && owner != kNoLink && owner != link.index) ||
        (!here && owner == link.index)) {
      return Error{ErrorCode::kRefused,
                   "shard " + std::to_string(i) + " is served by both " +
                       links_[owner]->endpoint.ToString() + " and " +
                       link.endpoint.ToString() +
                       ", or by another than before: give each process of the "
                       "aggregator its own part, and keep it"};
    }
    if (here) owner = link.index;
  }
  const bool all_known =
      std::all_of(links_.begin(), links_.end(), [&](const auto& other) {
        return other->incarnation != 0 || other->index == link.index;
      });
  const auto orphan =
      std::find_if(lines_.begin(), lines_.end(),
                   [](const ShardLine& line) { return line.link == kNoLink; });
  if (all_known && orphan != lines_.end()) {
    return Error{ErrorCode::kRefused,
                 "shard " + std::to_string(orphan - lines_.begin()) +
                     " is served by none of the " +
                     std::to_string(links_.size()) +
                     " aggregators that were given: name all of its "
                     "processes"};
  }
  return Done{};
}

// From Joined to the end of the connection.
Awaitable<Status> ClientCore::Converse(Link& link, const OpenedLink& opened) {
  const Joined& joined = opened.joined;
  if (link.incarnation != 0) counts_.reconnects.fetch_add(1);
  const Status taken = TakeShards(link, joined);
  if (!taken.ok()) co_return taken;
  link.channel = opened.channel;
  link.useful = false;
  link.incarnation = joined.incarnation;
  link.lease = std::chrono::milliseconds(joined.lease_ms);
  link.last_sent = Clock::now();
  link.counted_sent = link.counted_received = 0;
  rank_ = joined.rank;
  has_rank_ = true;
  SetLive(joined.live);
  {
    const std::lock_guard lock(mutex_);
    trouble_ = "connected to " + link.endpoint.ToString() + " as rank " +
               std::to_string(joined.rank) + ", which has not answered yet";
  }
  link.channel->OnSent([this](const FrameHeader& sent) {
    if (sent.type == FrameType::kPush) lines_[sent.shard].sending = false;
  });
  for (uint32_t i = joined.first_shard; i < joined.end_shard; ++i) {
    ShardLine& line = lines_[i];
    if (!joined.resumed || line.phase == Phase::kUnsynced ||
        line.phase == Phase::kPulling) {
      SendPull(line, i);
    } else if (line.phase == Phase::kPushed) {
      SendPush(line, i);
    }
  }
  while (true) {
    // Pongs come at least that often.
    const Result<FrameHeader> header =
        co_await link.channel->ReadHeader(link.lease);
    if (!header.ok()) co_return header.error();
    const Status status = co_await Handle(link, *header);
    CountTraffic(link);
    if (!status.ok()) co_return status;
  }
}

// Also whether the frame may come at all.
Result<size_t> ClientCore::PayloadLimit(const Link& link,
                                        const FrameHeader& header) const {
  const Error misplaced{ErrorCode::kCorrupt,
                        "a misplaced " + std::string(NameOf(header.type)) +
                            " frame from " + link.channel->peer()};
  switch (header.type) {
    case FrameType::kError:
      return kMaxGreetingBytes;
    case FrameType::kPong:
      return Standing::kBytes;
    case FrameType::kStatusIs:
      return kMaxStatusBytes;
    default:
      break;
  }
  if (header.fingerprint != layout_.short_fingerprint() ||
      header.shard >= lines_.size() ||
      lines_[header.shard].link != link.index) {
    return misplaced;
  }
  const size_t entries = map_.shards()[header.shard].entries;
  switch (header.type) {
    case FrameType::kState:
      return Standing::kBytes + entries * sizeof(float);
    case FrameType::kReply:
      return Standing::kBytes +
             MaxCodeBytes(entries, entries, ValueCode::kFloat32);
    case FrameType::kNoCentre:
    case FrameType::kResync:
    case FrameType::kRefused:
    case FrameType::kDigestIs:
      return kMaxGreetingBytes;
    default:
      return misplaced;
  }
}

Awaitable<Status> ClientCore::Handle(Link& link, const FrameHeader& header) {
  const Result<size_t> limit = PayloadLimit(link, header);
  if (!limit.ok()) co_return limit.error();
  if (header.payload_bytes > *limit) {
    co_return Error{
        ErrorCode::kCorrupt,
        "a " + std::string(NameOf(header.type)) + " frame that is too long"};
  }
  const size_t floats =
      (header.payload_bytes + sizeof(float) - 1) / sizeof(float);
  if (link.payload.size() < floats) link.payload.resize(floats);
  const std::span<std::byte> payload =
      std::as_writable_bytes(std::span(link.payload))
          .first(header.payload_bytes);
  Status status = co_await link.channel->ReadPayload(payload);
  // The answer may have overtaken the news that the push has left.
  while (status.ok() && AnswersPush(header.type) &&
         lines_[header.shard].sending) {
    if (link.channel->closed()) co_return link.channel->why();
    co_await link.channel->NextSent();
  }
  if (status.ok()) status = Dispatch(link, header, payload);
  co_return status;
}

Status ClientCore::Dispatch(Link& link, const FrameHeader& header,
                            std::span<const std::byte> payload) {
  switch (header.type) {
    case FrameType::kError: {
      const Result<Complaint> complaint = Complaint::Parse(payload);
      if (!complaint.ok()) return complaint.error();
      return ErrorOf(*complaint, link.channel->peer());
    }
    case FrameType::kPong: {
      const Result<Standing> standing = Standing::Parse(payload);
      if (!standing.ok()) return standing.error();
      SetLive(standing->live);
      return Done{};
    }
    case FrameType::kStatusIs:
      if (!answered_.load()) {
        question_.text.assign(reinterpret_cast<const char*>(payload.data()),
                              payload.size());
        AnswerOne(FrameType::kStatus);
      }
      return Done{};
    case FrameType::kState:
      link.useful = true;
      return OnState(header.shard, header.sequence, payload);
    case FrameType::kReply:
      link.useful = true;
      return OnReply(header.shard, header.sequence, payload);
    case FrameType::kNoCentre:
      BringWeights(lines_[header.shard], header.shard);
      return Done{};
    case FrameType::kResync:
      if (!answered_.load() && question_.type != FrameType::kPull) {
        BreakQuestion("resynchronising");
      }
      SendPull(lines_[header.shard], header.shard);
      return Done{};
    case FrameType::kRefused:
      OnRefused(header.shard, header.sequence, payload);
      return Done{};
    default:
      return OnDigest(header.shard, header.sequence, payload);
  }
}

void ClientCore::CountTraffic(Link& link) {
  const uint64_t sent = link.channel->bytes_sent();
  const uint64_t received = link.channel->bytes_received();
  counts_.bytes_sent.fetch_add(sent - link.counted_sent,
                               std::memory_order_relaxed);
  counts_.bytes_received.fetch_add(received - link.counted_received,
                                   std::memory_order_relaxed);
  link.counted_sent = sent;
  link.counted_received = received;
}

void ClientCore::Disconnected(Link& link, const Error& why) {
  if (link.channel != nullptr) {
    CountTraffic(link);
    link.channel->OnSent({});
    link.channel->CloseAfterSending(why);
    link.channel.reset();
  }
  for (ShardLine& line : lines_) {
    if (line.link == link.index) line.sending = false;
  }
  BreakQuestion(why.message);
}

// Signs of life, and what is to be asked for again.
Awaitable<void> ClientCore::RunTicker() {
  while (!closing_) {
    SysError error;
    tick_.expires_after(kTick);
    co_await tick_.async_wait(Into(error));
    if (closing_ || failed_) co_return;
    const Clock::time_point now = Clock::now();
    for (const std::unique_ptr<Link>& link : links_) {
      if (link->channel == nullptr) continue;
      CountTraffic(*link);
      if (now - link->last_sent > link->lease / 3) {
        link->last_sent = now;
        link->channel->Send(Header(FrameType::kPing));
      }
    }
    for (uint32_t i = 0; i < lines_.size(); ++i) {
      if (lines_[i].phase == Phase::kUnsynced) SendPull(lines_[i], i);
    }
  }
}

}  // namespace tensorlightning
