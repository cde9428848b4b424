// The payloads of frames that are more than bare bytes (see PROTOCOL.md).
//
// Each has Encode(), and a Parse() that takes any bytes at all and returns a
// message or an error (kCorrupt): never a crash, and no allocation larger than
// the bytes it was given.
#ifndef TENSORLIGHTNING_COMM_MESSAGES_H_
#define TENSORLIGHTNING_COMM_MESSAGES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/layout.h"
#include "kernels/exchange.h"
#include "kernels/result.h"

namespace tensorlightning {

using Bytes = std::vector<std::byte>;
using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;  // HMAC-SHA256

inline constexpr int32_t kAnyRank = -1;
inline constexpr size_t kMaxIdBytes = 64;  // Of a job's id, a worker's name.
// No frame before kJoin may have a longer payload.
inline constexpr size_t kMaxGreetingBytes = 512;
// The longest kJoin: bounds what an authenticated stranger can make us read.
inline constexpr size_t kMaxJoinBytes = size_t{16} << 20;

struct Hello {
  Nonce nonce{};
  Fingerprint fingerprint{};
  uint64_t attempt = 0;     // A later one of the same rank fences this one off.
  int32_t rank = kAnyRank;  // kAnyRank: give me one.
  std::string job;          // At most kMaxIdBytes each: Encode() cuts them,
                            // Parse() refuses more, and control characters.
  std::string name;         // For people: "host:pid".

  Bytes Encode() const;
  static Result<Hello> Parse(std::span<const std::byte> bytes);
  bool operator==(const Hello&) const = default;
};

struct Challenge {
  Nonce nonce{};
  bool wants_secret = false;

  Bytes Encode() const;
  static Result<Challenge> Parse(std::span<const std::byte> bytes);
  bool operator==(const Challenge&) const = default;
};

// What the aggregator does with pushes.
enum class Rule : uint8_t {
  kAverage = 0,        // elastic, local, dense, and all between
  kGradientAsync = 1,  // sums gradients; each reply has what is new
  kGradientSync = 2,   // the same, once all live workers have pushed
};
inline constexpr int kRules = 3;
const char* NameOf(Rule rule);  // "average", "gradient-async", "gradient-sync"

struct Join {
  Rule rule = Rule::kAverage;
  // How this worker wants its replies: chunk-wise top-k of a density in (0, 1];
  // dense shards go whole.
  Compression reply{SelectionRule::ChunkTopK(1.0), ValueCode::kFloat32};
  uint64_t incarnation = 0;  // Of the aggregator it was with before; 0: none.
  Bytes layout;              // Layout::Serialise()

  Bytes Encode() const;
  static Result<Join> Parse(std::span<const std::byte> bytes);
};

struct Joined {
  uint32_t rank = 0;
  uint32_t live = 0;         // Workers, this one among them.
  uint64_t incarnation = 0;  // Of this aggregator process; never 0.
  uint32_t lease_ms = 0;     // Silence for which a worker is dropped.
  uint32_t first_shard = 0;  // Shards [first, end) are served here.
  uint32_t end_shard = 0;
  bool resumed = false;  // Your views are still here: go on, no need to pull.

  Bytes Encode() const;
  static Result<Joined> Parse(std::span<const std::byte> bytes);
  bool operator==(const Joined&) const = default;
};

enum class WireError : uint16_t {
  kBadFrame = 1,   // What came is no frame, or none that belongs here.
  kVersion = 2,    // Another protocol version.
  kSecret = 3,     // Wrong or missing.
  kJob = 4,        // Another job's worker.
  kLayout = 5,     // Another model.
  kRule = 6,       // Another rule, or an impossible setting.
  kFenced = 7,     // A newer attempt has taken over this rank.
  kNotFinite = 8,  // NaN, Inf or huge values in a push.
  kCorrupt = 9,    // A push that is no code.
  kBusy = 10,      // Too many, or too long silent; later, perhaps.
  kShutdown = 11,  // The aggregator ends.
  kInternal = 12,
};
// Whether it is of any use to connect again. Not for codes unknown here.
bool MayRetry(WireError code);

// kError and kRefused.
struct Complaint {
  WireError code = WireError::kInternal;
  std::string message;  // Cut at kMaxComplaintBytes; Parse() makes spaces of
                        // control characters, as it will be shown to people.

  static constexpr size_t kMaxComplaintBytes = 480;

  Bytes Encode() const;
  static Result<Complaint> Parse(std::span<const std::byte> bytes);
  bool operator==(const Complaint&) const = default;
};

// How things stand: what kReply, kState and kPong begin with; a code, floats
// or nothing follow.
struct Standing {
  static constexpr size_t kBytes = 24;

  uint32_t live = 0;     // Workers.
  uint64_t durable = 0;  // This worker's last push that a snapshot holds.
  uint64_t version = 0;  // Pushes of all workers applied to this shard.

  std::array<std::byte, kBytes> Encode() const;
  // Looks at the first kBytes only.
  static Result<Standing> Parse(std::span<const std::byte> bytes);
  bool operator==(const Standing&) const = default;
};

struct Digest {
  uint32_t view = 0;    // CRC32C of the worker's view of the shard, as floats.
  uint32_t centre = 0;  // And of the centre.
  uint64_t version = 0;

  Bytes Encode() const;
  static Result<Digest> Parse(std::span<const std::byte> bytes);
  bool operator==(const Digest&) const = default;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_MESSAGES_H_
