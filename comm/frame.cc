#include "comm/frame.h"

#include <string>
#include <string_view>

#include "comm/crc32c.h"
#include "comm/wire_format.h"

namespace tensorlightning {
namespace {

constexpr size_t kCheckedBytes = kFrameHeaderBytes - sizeof(uint32_t);

Error Corrupt(const std::string& what) {
  return {ErrorCode::kCorrupt, "frame: " + what};
}

// The strangers that are met in practice, named: it saves an hour.
std::string NotOurs(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              bytes.size());
  if (text.starts_with("\x16\x03")) {
    return "the other end speaks TLS and this one does not; turn it on at both "
           "or at none";
  }
  for (const char* const method : {"GET ", "POST ", "HEAD ", "HTTP/"}) {
    if (text.starts_with(method)) {
      return "the other end speaks HTTP; is this the right port?";
    }
  }
  return "what came does not begin like one; is the other end TensorLightning?";
}

}  // namespace

const char* NameOf(FrameType type) {
  switch (type) {
    case FrameType::kHello:
      return "hello";
    case FrameType::kChallenge:
      return "challenge";
    case FrameType::kProof:
      return "proof";
    case FrameType::kWelcome:
      return "welcome";
    case FrameType::kJoin:
      return "join";
    case FrameType::kJoined:
      return "joined";
    case FrameType::kError:
      return "error";
    case FrameType::kInit:
      return "init";
    case FrameType::kPull:
      return "pull";
    case FrameType::kState:
      return "state";
    case FrameType::kNoCentre:
      return "no-centre";
    case FrameType::kPush:
      return "push";
    case FrameType::kReply:
      return "reply";
    case FrameType::kRefused:
      return "refused";
    case FrameType::kResync:
      return "resync";
    case FrameType::kPing:
      return "ping";
    case FrameType::kPong:
      return "pong";
    case FrameType::kLeave:
      return "leave";
    case FrameType::kDigest:
      return "digest";
    case FrameType::kDigestIs:
      return "digest-is";
    case FrameType::kStatus:
      return "status";
    case FrameType::kStatusIs:
      return "status-is";
  }
  return "unknown";
}

bool IsFrameType(uint8_t type) {
  return (type >= static_cast<uint8_t>(FrameType::kHello) &&
          type <= static_cast<uint8_t>(FrameType::kError)) ||
         (type >= static_cast<uint8_t>(FrameType::kInit) &&
          type <= static_cast<uint8_t>(FrameType::kNoCentre)) ||
         (type >= static_cast<uint8_t>(FrameType::kPush) &&
          type <= static_cast<uint8_t>(FrameType::kResync)) ||
         (type >= static_cast<uint8_t>(FrameType::kPing) &&
          type <= static_cast<uint8_t>(FrameType::kStatusIs));
}

FrameHeaderBytes EncodeHeader(const FrameHeader& header) {
  FrameHeaderBytes bytes{};
  FixedWriter out(bytes);
  out.U32(kFrameMagic);
  out.U8(kProtocolVersion);
  out.U8(static_cast<uint8_t>(header.type));
  out.U16(0);
  out.U32(header.shard);
  out.U32(header.payload_bytes);
  out.U64(header.sequence);
  out.U64(header.fingerprint);
  out.U32(Crc32c(std::span(bytes).first<kCheckedBytes>()));
  return bytes;
}

Result<FrameHeader> ParseHeader(
    std::span<const std::byte, kFrameHeaderBytes> bytes) {
  FieldReader in(bytes);
  if (in.U32() != kFrameMagic) return Corrupt(NotOurs(bytes));
  const uint8_t version = in.U8();
  const uint8_t type = in.U8();
  const uint16_t zero = in.U16();
  FrameHeader header{};
  header.shard = in.U32();
  header.payload_bytes = in.U32();
  header.sequence = in.U64();
  header.fingerprint = in.U64();
  // Before the version: a flipped bit there is damage, not another release.
  if (in.U32() != Crc32c(bytes.first<kCheckedBytes>())) {
    return Corrupt("the header's checksum is wrong; it was damaged on the way");
  }
  if (version != kProtocolVersion) {
    return Error{ErrorCode::kInvalidArgument,
                 "frame: the other end speaks protocol version " +
                     std::to_string(version) + ", this one version " +
                     std::to_string(kProtocolVersion) +
                     "; run the same release of TensorLightning at both ends"};
  }
  if (zero != 0) return Corrupt("bytes 6 and 7 are not zero");
  if (!IsFrameType(type)) {
    return Corrupt("type " + std::to_string(type) + " is none");
  }
  header.type = static_cast<FrameType>(type);
  return header;
}

}  // namespace tensorlightning
