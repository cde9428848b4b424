#include "comm/client/open_link.h"

#include <optional>
#include <utility>

#include "comm/handshake.h"
#include "comm/transport/connect.h"

namespace tensorlightning {
namespace {

Awaitable<Result<Joined>> Greet(const std::shared_ptr<Channel>& channel,
                                const LinkSettings& settings,
                                const Hello& hello, const Join& join) {
  if (settings.tls != nullptr) {
    const Status status = co_await channel->ShakeHandsAsClient(
        settings.tls, settings.endpoint.host);
    if (!status.ok()) co_return status.error();
  }
  WorkerHandshake handshake(settings.secret, hello);
  channel->Send({FrameType::kHello}, handshake.HelloPayload());
  while (true) {
    const Result<FrameHeader> header =
        co_await channel->ReadHeader(settings.timeouts.handshake);
    if (!header.ok()) co_return header.error();
    const Result<Bytes> payload =
        co_await channel->ReadSmall(*header, kMaxGreetingBytes);
    if (!payload.ok()) co_return payload.error();
    if (handshake.done()) {
      if (header->type == FrameType::kJoined) co_return Joined::Parse(*payload);
      if (header->type != FrameType::kError) {
        co_return Error{ErrorCode::kCorrupt, channel->peer() +
                                                 " answered a join with a " +
                                                 NameOf(header->type)};
      }
      const Result<Complaint> complaint = Complaint::Parse(*payload);
      if (!complaint.ok()) co_return complaint.error();
      co_return ErrorOf(*complaint, channel->peer());
    }
    Result<std::optional<Bytes>> answer =
        handshake.Take(header->type, *payload);
    if (!answer.ok()) co_return answer.error();
    if (handshake.done()) {
      FrameHeader joining{FrameType::kJoin};
      channel->Send(joining, join.Encode());
    } else if (answer->has_value()) {
      channel->Send({FrameType::kProof}, std::move(**answer));
    }
  }
}

}  // namespace

Error ErrorOf(const Complaint& complaint, const std::string& peer) {
  return {MayRetry(complaint.code) ? ErrorCode::kIo : ErrorCode::kRefused,
          "the aggregator at " + peer + " says: " + complaint.message};
}

Awaitable<Result<OpenedLink>> OpenLink(Strand strand, Watchdog& watchdog,
                                       const LinkSettings& settings,
                                       const Hello& hello, const Join& join,
                                       asio::steady_timer& cancel) {
  Result<Socket> socket =
      co_await Connect(strand, settings.endpoint, settings.timeouts.connect,
                       settings.congestion, cancel);
  if (!socket.ok()) co_return socket.error();
  const std::shared_ptr<Channel> channel = Channel::Make(
      strand, std::move(*socket), settings.timeouts, watchdog, settings.queue);
  // From here on cancelling the timer closes the channel.
  cancel.expires_at(asio::steady_timer::time_point::max());
  cancel.async_wait([channel](SysError error) {
    if (error) channel->Close({ErrorCode::kIo, "the worker ends"});
  });
  channel->EstablishWithin(settings.timeouts.handshake);
  const Result<Joined> joined = co_await Greet(channel, settings, hello, join);
  if (!joined.ok()) {
    channel->CloseAfterSending(joined.error());
    Error why = joined.error();
    if (why.code == ErrorCode::kIo && settings.tls == nullptr) {
      why.message +=
          " during the handshake (if it wants TLS, give its authority: "
          "TL_TLS_CA)";
    }
    co_return why;
  }
  channel->Established();
  co_return OpenedLink{channel, *joined};
}

}  // namespace tensorlightning
