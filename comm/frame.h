// The frame: what everything on the wire is wrapped in (see PROTOCOL.md).
//
//   offset size
//        0    4  magic "TLF1"
//        4    1  protocol version
//        5    1  type
//        6    2  zero
//        8    4  shard
//       12    4  payload bytes, n
//       16    8  sequence number
//       24    8  layout fingerprint, first 8 bytes (0 before it is agreed on)
//       32    4  CRC32C of bytes 0 to 31
//       36    n  payload
//   36 + n    4  CRC32C of the payload
//
// Little-endian. The header has a checksum of its own so that a length is
// believed, and memory taken, only when it is what the sender wrote; the
// payload's comes after it so that both ends can compute it on the way.
#ifndef TENSORLIGHTNING_COMM_FRAME_H_
#define TENSORLIGHTNING_COMM_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/result.h"

namespace tensorlightning {

inline constexpr uint32_t kFrameMagic = 0x31464c54;  // "TLF1"
inline constexpr uint8_t kProtocolVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 36;
inline constexpr size_t kFrameTrailerBytes = 4;

enum class FrameType : uint8_t {
  // The handshake, in this order; then Error may end any conversation.
  kHello = 1,      // worker: who I am, nonce
  kChallenge = 2,  // aggregator: nonce
  kProof = 3,      // worker: HMAC
  kWelcome = 4,    // aggregator: HMAC
  kJoin = 5,       // worker: layout, rule
  kJoined = 6,     // aggregator: rank, shards, lease
  kError = 7,      // either: code and sentence, then the end
  // Getting the centre.
  kInit = 16,      // worker of rank 0: first weights of a shard
  kPull = 17,      // worker: the centre of a shard, please
  kState = 18,     // aggregator: here it is; it is your view now
  kNoCentre = 19,  // aggregator: nobody has brought it yet
  // Exchanges.
  kPush = 24,     // worker: code
  kReply = 25,    // aggregator: code
  kRefused = 26,  // aggregator: that push was not applied, because
  kResync = 27,   // aggregator: your view is gone; pull
  // The rest.
  kPing = 32,      // worker: I live
  kPong = 33,      // aggregator: so do I
  kLeave = 34,     // worker: that was all
  kDigest = 35,    // worker: checksums of a shard, please
  kDigestIs = 36,  // aggregator: here they are
  kStatus = 37,    // worker: how is everybody?
  kStatusIs = 38,  // aggregator: JSON
};
const char* NameOf(FrameType type);  // "push"; "unknown" for what is none.
bool IsFrameType(uint8_t type);

struct FrameHeader {
  FrameType type;
  uint32_t shard = 0;
  uint32_t payload_bytes = 0;
  uint64_t sequence = 0;
  uint64_t fingerprint = 0;

  bool operator==(const FrameHeader&) const = default;
};

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

FrameHeaderBytes EncodeHeader(const FrameHeader& header);

// kCorrupt: not a header (magic, checksum, type, the zero). kInvalidArgument:
// the header of another protocol version; the error names both. Says nothing
// on whether the length is acceptable: that depends on who is talking.
Result<FrameHeader> ParseHeader(
    std::span<const std::byte, kFrameHeaderBytes> bytes);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_FRAME_H_
