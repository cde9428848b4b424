#include "comm/aggregator/session.h"

#include <chrono>
#include <optional>
#include <utility>

#include "comm/aggregator/service.h"

namespace tensorlightning {
namespace {

// Beside one answer per shard: pongs, refusals and the like.
constexpr size_t kSpareQueue = 16;

Error OutOfPlace(const FrameHeader& header, const char* why) {
  return {ErrorCode::kCorrupt,
          "a " + std::string(NameOf(header.type)) + " frame " + why};
}

WireError WireErrorOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kNotFinite:
      return WireError::kNotFinite;
    case ErrorCode::kCorrupt:
      return WireError::kCorrupt;
    default:
      return WireError::kInternal;
  }
}

}  // namespace

Session::Session(Service& service, std::shared_ptr<Channel> channel)
    : front_(service),
      service_(&service),
      channel_(std::move(channel)),
      handshake_(service.options().secret, MakeNonce()) {}

Awaitable<void> Session::Run(std::shared_ptr<Session> self) {
  Status status = Done{};
  try {
    status = co_await self->Converse();
  } catch (const std::exception& error) {
    // Too little memory for one worker is no reason to end all of them.
    status = Error{ErrorCode::kUnavailable, error.what()};
  }
  const Error why =
      status.ok() ? Error{ErrorCode::kIo, "it left"} : status.error();
  self->channel_->OnSent({});
  self->channel_->CloseAfterSending(why);
  if (self->member_ != nullptr) self->CountTraffic();
  Service& told = self->member_ == nullptr ? self->front_ : *self->service_;
  told.Ended(self, why);
}

void Session::CountTraffic() {
  const uint64_t in = channel_->bytes_received();
  const uint64_t out = channel_->bytes_sent();
  member_->counts->bytes_in.fetch_add(in - counted_in_,
                                      std::memory_order_relaxed);
  member_->counts->bytes_out.fetch_add(out - counted_out_,
                                       std::memory_order_relaxed);
  counted_in_ = in;
  counted_out_ = out;
}

Awaitable<Status> Session::Converse() {
  channel_->EstablishWithin(service_->options().timeouts.handshake);
  if (service_->options().tls != nullptr) {
    const Status status =
        co_await channel_->ShakeHandsAsServer(service_->options().tls);
    if (!status.ok()) co_return status;
  }
  Status status = co_await Greet();
  if (!status.ok()) co_return status;
  status = co_await Admit();
  if (!status.ok()) co_return status;
  channel_->Established();
  status = co_await Serve();
  co_return status;
}

// Says it to the other end, too.
Status Session::Complain(WireError code, Error error) {
  channel_->Send({FrameType::kError}, Complaint{code, error.message}.Encode());
  return error;
}

// ---- Strangers. -------------------------------------------------------------

Awaitable<Status> Session::Greet() {
  const std::chrono::milliseconds patience =
      service_->options().timeouts.handshake;
  while (!handshake_.done()) {
    const Result<FrameHeader> header = co_await channel_->ReadHeader(patience);
    if (!header.ok()) {
      if (channel_->closed()) co_return header.error();
      const bool version = header.error().code == ErrorCode::kInvalidArgument;
      co_return Complain(version ? WireError::kVersion : WireError::kBadFrame,
                         header.error());
    }
    const Result<Bytes> payload =
        co_await channel_->ReadSmall(*header, kMaxGreetingBytes);
    if (!payload.ok())
      co_return Complain(WireError::kBadFrame, payload.error());
    Result<AggregatorHandshake::Answer> answer =
        handshake_.Take(header->type, *payload);
    if (!answer.ok()) {
      co_return Complain(handshake_.wire_error(), answer.error());
    }
    channel_->Send({answer->type}, std::move(answer->payload));
  }
  co_return Done{};
}

Awaitable<Status> Session::Admit() {
  const Hello& hello = handshake_.hello();
  const Result<FrameHeader> header =
      co_await channel_->ReadHeader(service_->options().timeouts.handshake);
  if (!header.ok()) co_return Complain(WireError::kBadFrame, header.error());
  if (header->type != FrameType::kJoin) {
    co_return Complain(WireError::kBadFrame,
                       OutOfPlace(*header, "where a join was due"));
  }
  const Result<Bytes> payload =
      co_await channel_->ReadSmall(*header, kMaxJoinBytes);
  if (!payload.ok()) co_return Complain(WireError::kBadFrame, payload.error());
  const Result<Join> join = Join::Parse(*payload);
  if (!join.ok()) co_return Complain(WireError::kBadFrame, join.error());

  WireError code = WireError::kInternal;
  const Result<Service*> service = front_.ServiceOf(hello.job);
  if (!service.ok()) co_return Complain(code, service.error());
  service_ = *service;
  const Result<std::shared_ptr<Centre>> centre =
      service_->CentreFor(hello, *join, code);
  if (!centre.ok()) co_return Complain(code, centre.error());
  const Result<Members::Admission> admission = service_->members().Admit(
      hello, shared_from_this(), service_->options().lease);
  if (!admission.ok()) {
    WireError why = WireError::kBusy;
    if (admission.error().code == ErrorCode::kRefused) why = WireError::kFenced;
    if (admission.error().code == ErrorCode::kInvalidArgument) {
      why = WireError::kRule;
    }
    co_return Complain(why, admission.error());
  }
  member_ = admission->member;
  if (admission->previous != nullptr) {
    co_await admission->previous->Shut(
        WireError::kFenced, "rank " + std::to_string(admission->member->rank) +
                                " was taken over by " + hello.name);
  }
  // Taken over itself meanwhile: the views are another's from here on.
  if (channel_->closed()) co_return channel_->why();
  centre_ = *centre;
  reply_ = join->reply;
  const ShardRange range = centre_->range();
  sending_.assign(range.size(), false);
  channel_->GrowQueue(range.size() + kSpareQueue);
  channel_->OnSent([this](const FrameHeader& sent) {
    if (sent.type == FrameType::kReply || sent.type == FrameType::kState) {
      sending_[sent.shard - centre_->range().begin] = false;
    } else if (sent.type == FrameType::kPong) {
      pong_queued_ = false;
    }
  });
  const bool resumed =
      admission->same_attempt && join->incarnation == service_->incarnation();
  if (!resumed) {
    // Whatever an earlier attempt had here, this one starts with a pull.
    for (uint32_t i = range.begin; i < range.end; ++i) {
      Centre::Served& served = centre_->at(i);
      co_await RunOn(served.strand, [&] {
        served.state.Drop(member_->rank);
        service_->DeliverReady(served, i);
      });
      if (channel_->closed()) co_return channel_->why();
    }
  }
  front_.IsNoStranger(shared_from_this());
  service_->Joined(shared_from_this(), *member_);
  Joined joined;
  joined.rank = member_->rank;
  joined.live = service_->members().live();
  joined.incarnation = service_->incarnation();
  joined.lease_ms = static_cast<uint32_t>(service_->options().lease.count());
  joined.first_shard = range.begin;
  joined.end_shard = range.end;
  joined.resumed = resumed;
  channel_->Send(Header(FrameType::kJoined), joined.Encode());
  joined_ = true;
  co_return Done{};
}

// ---- Workers. ---------------------------------------------------------------

FrameHeader Session::Header(FrameType type, uint32_t shard,
                            uint64_t sequence) const {
  FrameHeader header{type};
  header.shard = shard;
  header.sequence = sequence;
  header.fingerprint = centre_->layout().short_fingerprint();
  return header;
}

std::array<std::byte, Standing::kBytes> Session::Stamp(
    Standing standing) const {
  if (standing.live == 0) standing.live = service_->members().live();
  return standing.Encode();
}

std::span<std::byte> Session::Payload(size_t bytes) {
  const size_t floats = (bytes + sizeof(float) - 1) / sizeof(float);
  if (payload_.size() < floats) payload_.resize(floats);
  return std::as_writable_bytes(std::span(payload_)).first(bytes);
}

Awaitable<Status> Session::Serve() {
  while (true) {
    const Result<FrameHeader> header =
        co_await channel_->ReadHeader(service_->options().lease);
    if (!header.ok()) {
      if (channel_->closed()) co_return header.error();
      co_return Complain(WireError::kBadFrame, header.error());
    }
    member_->lease.Set(service_->options().lease);
    Status status = CheckHeader(*header);
    if (!status.ok()) co_return Complain(WireError::kBadFrame, status.error());
    if (header->type == FrameType::kLeave) {
      // Nothing of the views may be on its way when they are freed.
      const std::shared_ptr<Member> member = member_;
      channel_->Close({ErrorCode::kIo, "it left"});
      if (service_->members().Leave(*member)) service_->DropViews(member->rank);
      co_return Done{};
    }
    co_await UntilAnswered(*header);
    // Nothing is applied for who has been taken over meanwhile.
    if (channel_->closed()) co_return channel_->why();
    status = co_await Handle(*header);
    if (!status.ok()) {
      if (channel_->closed()) co_return status;
      const bool values = status.error().code == ErrorCode::kNotFinite;
      co_return Complain(values ? WireError::kNotFinite : WireError::kBadFrame,
                         status.error());
    }
    CountTraffic();
  }
}

// What a push or a pull would change may still be on its way to the worker: the
// news that an answer has left may come after the worker's next frame, and one
// that sends without reading has to wait.
Awaitable<void> Session::UntilAnswered(const FrameHeader& header) {
  if (header.type != FrameType::kPull && header.type != FrameType::kPush) {
    co_return;
  }
  const size_t slot = header.shard - centre_->range().begin;
  while (sending_[slot] && !channel_->closed()) co_await channel_->NextSent();
}

// Whether the frame may come from a worker, and may be as long as it is.
Status Session::CheckHeader(const FrameHeader& header) const {
  if (header.fingerprint != centre_->layout().short_fingerprint()) {
    return OutOfPlace(header, "of another model");
  }
  size_t limit = 0;
  switch (header.type) {
    case FrameType::kPing:
    case FrameType::kLeave:
    case FrameType::kStatus:
      break;
    case FrameType::kInit:
    case FrameType::kPull:
    case FrameType::kPush:
    case FrameType::kDigest: {
      if (!centre_->range().Contains(header.shard)) {
        return OutOfPlace(header, "for a shard that is not served here");
      }
      const size_t entries = centre_->map().shards()[header.shard].entries;
      if (header.type == FrameType::kInit) limit = entries * sizeof(float);
      if (header.type == FrameType::kPush) {
        limit = MaxCodeBytes(entries, entries, ValueCode::kFloat32);
      }
      break;
    }
    default:
      return OutOfPlace(header, "that no worker sends");
  }
  if (header.payload_bytes > limit) {
    return OutOfPlace(
        header, ("of " + std::to_string(header.payload_bytes) +
                 " bytes; at most " + std::to_string(limit) + " are possible")
                    .c_str());
  }
  return Done{};
}

Awaitable<Status> Session::Handle(const FrameHeader& header) {
  if (header.type == FrameType::kInit) {
    const Status status = co_await OnInit(header);
    co_return status;
  }
  if (header.type == FrameType::kPush) {
    const Status status = co_await OnPush(header);
    co_return status;
  }
  const Status empty = co_await channel_->ReadPayload({});
  if (!empty.ok()) co_return empty;
  switch (header.type) {
    case FrameType::kPull: {
      const Status status = co_await OnPull(header);
      co_return status;
    }
    case FrameType::kDigest: {
      const Status status = co_await OnDigest(header);
      co_return status;
    }
    case FrameType::kStatus: {
      const std::string json = service_->StatusJson();
      const std::span<const std::byte> bytes = std::as_bytes(std::span(json));
      channel_->Send(Header(FrameType::kStatusIs),
                     Bytes(bytes.begin(), bytes.end()));
      co_return Done{};
    }
    default:
      co_return OnPing();
  }
}

Status Session::OnPing() {
  // One at a time: they must not fill the queue of a slow link. The next reply
  // or pong has newer numbers.
  if (pong_queued_) return Done{};
  pong_queued_ = true;
  const std::array<std::byte, Standing::kBytes> standing = Stamp({});
  channel_->Send(Header(FrameType::kPong),
                 Bytes(standing.begin(), standing.end()));
  return Done{};
}

Awaitable<Status> Session::OnInit(const FrameHeader& header) {
  const std::span<std::byte> payload = Payload(header.payload_bytes);
  const Status read = co_await channel_->ReadPayload(payload);
  if (!read.ok()) co_return read;
  if (member_->rank != 0) {
    co_return OutOfPlace(header, "of a worker that is not rank 0");
  }
  Centre::Served& served = centre_->at(header.shard);
  if (payload.size() % sizeof(float) != 0) {
    co_return OutOfPlace(header, "that is no row of floats");
  }
  const std::span<const float> weights =
      std::span(payload_).first(payload.size() / sizeof(float));
  Status status = Done{};
  co_await RunOn(served.strand, [&] { status = served.state.Init(weights); });
  co_return status;
}

Awaitable<Status> Session::OnPull(const FrameHeader& header) {
  Centre::Served& served = centre_->at(header.shard);
  std::optional<CentreShard::View> view;
  co_await RunOn(served.strand, [&] {
    view = served.state.Pull(member_->rank, reply_);
    service_->DeliverReady(served, header.shard);
  });
  if (!view.has_value()) {
    channel_->Send(Header(FrameType::kNoCentre, header.shard));
    co_return Done{};
  }
  member_->counts->resyncs.fetch_add(1, std::memory_order_relaxed);
  sending_[header.shard - centre_->range().begin] = true;
  channel_->SendBorrowed(Header(FrameType::kState, header.shard, view->applied),
                         Stamp(view->standing), std::as_bytes(view->values));
  co_return Done{};
}

Awaitable<Status> Session::OnPush(const FrameHeader& header) {
  const std::span<std::byte> payload = Payload(header.payload_bytes);
  const Status read = co_await channel_->ReadPayload(payload);
  if (!read.ok()) co_return read;

  using Verdict = CentreShard::Verdict;
  Centre::Served& served = centre_->at(header.shard);
  CentreShard::Pushed pushed{Verdict::kIgnore, {}};
  std::optional<CentreShard::Reply> reply;
  const auto begin = std::chrono::steady_clock::now();
  co_await RunOn(served.strand, [&] {
    pushed = served.state.Push(member_->rank, header.sequence, payload);
    if (pushed.verdict == Verdict::kReply) {
      reply = served.state.LastReply(member_->rank);
    }
    service_->DeliverReady(served, header.shard);
  });
  service_->apply_time().Add(std::chrono::steady_clock::now() - begin);

  WorkerCounts& counts = *member_->counts;
  if (pushed.entries > 0) {
    counts.entries_in.fetch_add(pushed.entries, std::memory_order_relaxed);
  }
  switch (pushed.verdict) {
    case Verdict::kReply:
    case Verdict::kWait:
      (pushed.fresh ? counts.pushes : counts.repeated)
          .fetch_add(1, std::memory_order_relaxed);
      if (reply.has_value()) SendReply(header.shard, *reply);
      break;
    case Verdict::kResync:
      channel_->Send(Header(FrameType::kResync, header.shard, header.sequence));
      break;
    case Verdict::kRefused:
      counts.refused.fetch_add(1, std::memory_order_relaxed);
      service_->options().log.Warning("push refused",
                                      {{"rank", member_->rank},
                                       {"shard", header.shard},
                                       {"reason", pushed.error->message}});
      channel_->Send(
          Header(FrameType::kRefused, header.shard, header.sequence),
          Complaint{WireErrorOf(*pushed.error), pushed.error->message}
              .Encode());
      break;
    case Verdict::kIgnore:
      break;
  }
  co_return Done{};
}

Awaitable<Status> Session::OnDigest(const FrameHeader& header) {
  Centre::Served& served = centre_->at(header.shard);
  std::optional<Digest> digest;
  uint64_t applied = 0;
  co_await RunOn(served.strand, [&] {
    digest = served.state.DigestFor(member_->rank);
    applied = served.state.AppliedOf(member_->rank);
  });
  if (digest.has_value()) {
    channel_->Send(Header(FrameType::kDigestIs, header.shard, applied),
                   digest->Encode());
  } else {
    channel_->Send(Header(FrameType::kResync, header.shard, applied));
  }
  co_return Done{};
}

void Session::SendReply(uint32_t shard, const CentreShard::Reply& reply) {
  const size_t slot = shard - centre_->range().begin;
  if (sending_[slot]) return;  // It is on its way already.
  sending_[slot] = true;
  member_->counts->entries_out.fetch_add(reply.entries,
                                         std::memory_order_relaxed);
  channel_->SendBorrowed(Header(FrameType::kReply, shard, reply.sequence),
                         Stamp(reply.standing), reply.code);
}

void Session::Announce() {
  asio::post(channel_->strand(), [self = shared_from_this()] {
    if (self->joined_) (void)self->OnPing();
  });
}

void Session::Deliver(uint32_t shard, const CentreShard::Reply& reply) {
  // A copy: the worker may push again, rightly or not, before it has left.
  asio::post(channel_->strand(),
             [self = shared_from_this(), shard, reply,
              code = Bytes(reply.code.begin(), reply.code.end())] {
               self->SendCopy(shard, reply, code);
             });
}

void Session::SendCopy(uint32_t shard, const CentreShard::Reply& reply,
                       const Bytes& code) {
  // One that has just come back will send its push again.
  if (!joined_ || channel_->closed()) return;
  member_->counts->entries_out.fetch_add(reply.entries,
                                         std::memory_order_relaxed);
  const std::array<std::byte, Standing::kBytes> standing =
      Stamp(reply.standing);
  Bytes payload(standing.begin(), standing.end());
  payload.insert(payload.end(), code.begin(), code.end());
  channel_->Send(Header(FrameType::kReply, shard, reply.sequence),
                 std::move(payload));
}

Awaitable<void> Session::Shut(WireError code, std::string why) {
  co_await RunOn(channel_->strand(), [&] {
    // It does not wait for the queue: borrowed memory must not be read again.
    // What fits into the socket's buffer at once is still said.
    channel_->Send({FrameType::kError}, Complaint{code, why}.Encode());
    channel_->Close({ErrorCode::kIo, why});
  });
}

void Session::End(WireError code, const std::string& why) {
  asio::post(channel_->strand(), [self = shared_from_this(), code, why] {
    // A stranger in the middle of TLS has no ear for it, and would stay.
    const bool can_hear =
        self->joined_ || self->service_->options().tls == nullptr;
    if (!can_hear) {
      self->channel_->Close({ErrorCode::kIo, why});
      return;
    }
    (void)self->Complain(code, {ErrorCode::kIo, why});
    self->channel_->CloseAfterSending({ErrorCode::kIo, why});
  });
}

}  // namespace tensorlightning
