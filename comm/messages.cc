#include "comm/messages.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "comm/wire_format.h"

namespace tensorlightning {
namespace {

constexpr size_t kHelloMaxBytes =
    sizeof(Nonce) + sizeof(Fingerprint) + 8 + 4 + 2 * (1 + kMaxIdBytes);
constexpr size_t kComplaintMaxBytes = 2 + 2 + Complaint::kMaxComplaintBytes;
constexpr size_t kJoinBytesWithoutLayout = 1 + 1 + 1 + 8 + 8 + 4;
static_assert(kHelloMaxBytes <= kMaxGreetingBytes);
static_assert(kComplaintMaxBytes <= kMaxGreetingBytes);
static_assert(kJoinBytesWithoutLayout + Layout::kMaxSerialisedBytes <=
              kMaxJoinBytes);

Error Corrupt(const char* message, std::string_view why) {
  return {ErrorCode::kCorrupt, std::string(message) + ": " + std::string(why)};
}

Error WrongLength(const char* message, const FieldReader& in) {
  return Corrupt(message,
                 in.too_short() ? "ends too early" : "goes on after its end");
}

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

bool IsId(std::string_view text) {
  return text.size() <= kMaxIdBytes && std::ranges::none_of(text, IsControl);
}

// The beginning of a text, at most `most` bytes, without half a character of
// UTF-8 at its end.
std::string_view Shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  const auto continues = [](char c) { return (c & 0xc0) == 0x80; };
  size_t end = most;
  while (end + 3 > most && continues(text[end])) --end;
  return text.substr(0, end);
}

// A stranger's text must not move a terminal's cursor: neither by the control
// characters of ASCII nor by U+0080 to U+009F.
void Tame(std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsControl(text[i])) text[i] = ' ';
    const bool c1 = i > 0 && text[i - 1] == '\xc2' && (text[i] & 0xe0) == 0x80;
    if (c1) text[i - 1] = text[i] = ' ';
  }
}

}  // namespace

Bytes Hello::Encode() const {
  Bytes bytes;
  FieldWriter out(bytes);
  out.Raw(nonce);
  out.Raw(fingerprint);
  out.U64(attempt);
  out.U32(static_cast<uint32_t>(rank));
  out.String8(Shortened(job, kMaxIdBytes));
  out.String8(Shortened(name, kMaxIdBytes));
  return bytes;
}

Result<Hello> Hello::Parse(std::span<const std::byte> bytes) {
  FieldReader in(bytes);
  Hello hello;
  in.Array(hello.nonce);
  in.Array(hello.fingerprint);
  hello.attempt = in.U64();
  hello.rank = static_cast<int32_t>(in.U32());
  hello.job = in.String8();
  hello.name = in.String8();
  if (!in.Finished()) return WrongLength("hello", in);
  if (hello.rank < kAnyRank) return Corrupt("hello", "the rank is below -1");
  if (!IsId(hello.job) || !IsId(hello.name)) {
    return Corrupt("hello",
                   "the job's or worker's name is longer than 64 bytes or has "
                   "control characters");
  }
  return hello;
}

Bytes Challenge::Encode() const {
  Bytes bytes;
  FieldWriter out(bytes);
  out.Raw(nonce);
  out.U8(wants_secret ? 1 : 0);
  return bytes;
}

Result<Challenge> Challenge::Parse(std::span<const std::byte> bytes) {
  FieldReader in(bytes);
  Challenge challenge;
  in.Array(challenge.nonce);
  const uint8_t wants_secret = in.U8();
  if (!in.Finished()) return WrongLength("challenge", in);
  if (wants_secret > 1) return Corrupt("challenge", "a flag is not 0 or 1");
  challenge.wants_secret = wants_secret == 1;
  return challenge;
}

const char* NameOf(Rule rule) {
  switch (rule) {
    case Rule::kAverage:
      return "average";
    case Rule::kGradientAsync:
      return "gradient-async";
    case Rule::kGradientSync:
      return "gradient-sync";
  }
  return "unknown";
}

Bytes Join::Encode() const {
  Bytes bytes;
  bytes.reserve(kJoinBytesWithoutLayout + layout.size());
  FieldWriter out(bytes);
  out.U8(static_cast<uint8_t>(rule));
  out.U8(static_cast<uint8_t>(reply.rule.kind));
  out.U8(static_cast<uint8_t>(reply.values));
  out.F64(reply.rule.amount);
  out.U64(incarnation);
  out.U32(static_cast<uint32_t>(layout.size()));
  out.Raw(layout);
  return bytes;
}

Result<Join> Join::Parse(std::span<const std::byte> bytes) {
  FieldReader in(bytes);
  Join join;
  const uint8_t rule = in.U8();
  const uint8_t kind = in.U8();
  const uint8_t values = in.U8();
  const double density = in.F64();
  join.incarnation = in.U64();
  const std::span<const std::byte> layout = in.Raw(in.U32());
  if (!in.Finished()) return WrongLength("join", in);
  if (rule >= kRules) return Corrupt("join", "the rule is none");
  if (kind != static_cast<uint8_t>(SelectionRule::Kind::kChunkTopK)) {
    return Corrupt("join", "replies are selected by chunk-wise top-k only");
  }
  if (values >= kValueCodes) return Corrupt("join", "the value code is none");
  const bool possible = density > 0 && density <= 1;  // Not if it is NaN.
  if (!possible) {
    return Corrupt("join", "the density of replies is not in (0, 1]");
  }
  join.rule = static_cast<Rule>(rule);
  join.reply = {SelectionRule::ChunkTopK(density),
                static_cast<ValueCode>(values)};
  join.layout.assign(layout.begin(), layout.end());
  return join;
}

Bytes Joined::Encode() const {
  Bytes bytes;
  FieldWriter out(bytes);
  out.U32(rank);
  out.U32(live);
  out.U64(incarnation);
  out.U32(lease_ms);
  out.U32(first_shard);
  out.U32(end_shard);
  out.U8(resumed ? 1 : 0);
  return bytes;
}

Result<Joined> Joined::Parse(std::span<const std::byte> bytes) {
  FieldReader in(bytes);
  Joined joined;
  joined.rank = in.U32();
  joined.live = in.U32();
  joined.incarnation = in.U64();
  joined.lease_ms = in.U32();
  joined.first_shard = in.U32();
  joined.end_shard = in.U32();
  const uint8_t resumed = in.U8();
  if (!in.Finished()) return WrongLength("joined", in);
  if (joined.rank > uint32_t{std::numeric_limits<int32_t>::max()}) {
    return Corrupt("joined", "the rank is too large");
  }
  if (joined.live == 0) return Corrupt("joined", "no worker lives");
  if (joined.incarnation == 0) return Corrupt("joined", "the incarnation is 0");
  if (joined.lease_ms == 0) return Corrupt("joined", "the lease is 0");
  if (joined.first_shard >= joined.end_shard) {
    return Corrupt("joined", "there are no shards in it");
  }
  if (resumed > 1) return Corrupt("joined", "a flag is not 0 or 1");
  joined.resumed = resumed == 1;
  return joined;
}

bool MayRetry(WireError code) {
  switch (code) {
    case WireError::kBadFrame:  // The next connection may be a better one.
    case WireError::kBusy:
    case WireError::kShutdown:  // It may come back.
    case WireError::kInternal:
      return true;
    case WireError::kVersion:
    case WireError::kSecret:
    case WireError::kJob:
    case WireError::kLayout:
    case WireError::kRule:
    case WireError::kFenced:
    case WireError::kNotFinite:
    case WireError::kCorrupt:
      return false;
  }
  return false;
}

Bytes Complaint::Encode() const {
  Bytes bytes;
  FieldWriter out(bytes);
  out.U16(static_cast<uint16_t>(code));
  out.String16(Shortened(message, kMaxComplaintBytes));
  return bytes;
}

Result<Complaint> Complaint::Parse(std::span<const std::byte> bytes) {
  FieldReader in(bytes);
  Complaint complaint;
  // Any code: the sentence is for a person, and worth more than the number.
  complaint.code = static_cast<WireError>(in.U16());
  complaint.message = in.String16();
  if (!in.Finished()) return WrongLength("error", in);
  if (complaint.message.size() > kMaxComplaintBytes) {
    return Corrupt("error", "its sentence is too long");
  }
  Tame(complaint.message);
  return complaint;
}

std::array<std::byte, Standing::kBytes> Standing::Encode() const {
  std::array<std::byte, kBytes> bytes{};
  FixedWriter out(bytes);
  out.U32(live);
  out.U32(0);
  out.U64(durable);
  out.U64(version);
  return bytes;
}

Result<Standing> Standing::Parse(std::span<const std::byte> bytes) {
  FieldReader in(bytes);
  Standing standing;
  standing.live = in.U32();
  const uint32_t zero = in.U32();
  standing.durable = in.U64();
  standing.version = in.U64();
  if (in.too_short()) return Corrupt("standing", "ends too early");
  if (zero != 0) return Corrupt("standing", "bytes 4 to 7 are not zero");
  return standing;
}

Bytes Digest::Encode() const {
  Bytes bytes;
  FieldWriter out(bytes);
  out.U32(view);
  out.U32(centre);
  out.U64(version);
  return bytes;
}

Result<Digest> Digest::Parse(std::span<const std::byte> bytes) {
  FieldReader in(bytes);
  Digest digest;
  digest.view = in.U32();
  digest.centre = in.U32();
  digest.version = in.U64();
  if (!in.Finished()) return WrongLength("digest-is", in);
  return digest;
}

}  // namespace tensorlightning
