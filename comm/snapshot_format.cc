#include "comm/snapshot_format.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "comm/crc32c.h"
#include "comm/wire_format.h"

namespace tensorlightning {
namespace {

constexpr std::string_view kMagic = "TLS1";
constexpr std::string_view kEndMagic = "TLSE";
constexpr uint16_t kFormat = 1;
constexpr size_t kHeaderFrontBytes = 28;
constexpr size_t kShardFrontBytes = 64;
constexpr size_t kShardZeroBytes = 44;
constexpr size_t kAppliedBytes = 16;
constexpr size_t kCrcBytes = 4;
constexpr size_t kEndBytes = 16;
static_assert(sizeof(ShardSnapshot) <= kShardFrontBytes);
static_assert(sizeof(AppliedPush) <= kAppliedBytes);

Error Corrupt(std::string why) { return {ErrorCode::kCorrupt, std::move(why)}; }

// Reads fields and sums them at once.
class SummedReader {
 public:
  explicit SummedReader(std::span<const std::byte> bytes) : in_(bytes) {}

  // The next n bytes, or none and an error later on.
  std::span<const std::byte> Take(size_t n) {
    const std::span<const std::byte> bytes = in_.Raw(n);
    crc_ = Crc32c(bytes, crc_);
    return bytes;
  }
  // What must come now: the CRC of everything before it.
  Status CheckCrc(const std::string& what) {
    const uint32_t crc = in_.U32();
    if (in_.too_short()) return Corrupt("it is cut off in " + what);
    if (crc != crc_) {
      return Corrupt(what + " is damaged: its checksum is wrong");
    }
    return Done{};
  }
  size_t left() const { return in_.left(); }

 private:
  FieldReader in_;
  uint32_t crc_ = 0;
};

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte b) { return b == std::byte{0}; });
}

Result<SnapshotHeader> ReadHeader(SummedReader& in) {
  FieldReader front(in.Take(kHeaderFrontBytes));
  const auto magic = front.Raw(kMagic.size());
  const uint16_t format = front.U16();
  SnapshotHeader header;
  const uint8_t rule = front.U8();
  const uint8_t job_bytes = front.U8();
  header.number = front.U64();
  header.range.begin = front.U32();
  header.range.end = front.U32();
  const uint32_t layout_bytes = front.U32();
  if (front.too_short()) return Corrupt("it is cut off in its header");
  if (!std::ranges::equal(magic, std::as_bytes(std::span(kMagic)))) {
    return Corrupt("it is no snapshot: it does not begin with TLS1");
  }
  if (format != kFormat) {
    return Corrupt("it is of format " + std::to_string(format) +
                   "; this program reads format " + std::to_string(kFormat));
  }
  const auto job = in.Take(job_bytes);
  const auto layout = in.Take(layout_bytes);
  if (Status status = in.CheckCrc("its header"); !status.ok()) {
    return status.error();
  }
  if (rule >= kRules || job_bytes > kMaxIdBytes ||
      header.range.begin > header.range.end) {
    return Corrupt("its header has a rule, an id or a range that can't be");
  }
  header.rule = static_cast<Rule>(rule);
  header.job.assign(reinterpret_cast<const char*>(job.data()), job.size());
  header.layout.assign(layout.begin(), layout.end());
  return header;
}

Result<ShardSnapshot> ReadShard(SummedReader& in, uint32_t index) {
  const std::string what = "shard " + std::to_string(index);
  FieldReader front(in.Take(kShardFrontBytes));
  ShardSnapshot shard;
  shard.shard = front.U32();
  const uint32_t workers = front.U32();
  shard.version = front.U64();
  const uint32_t entries = front.U32();
  bool zeros = AllZero(front.Raw(kShardZeroBytes));
  const auto applied = in.Take(kAppliedBytes * workers);
  if (Status status = in.CheckCrc(what); !status.ok()) return status.error();

  shard.applied.resize(workers);
  FieldReader fields(applied);
  for (AppliedPush& push : shard.applied) {
    push.rank = fields.U32();
    zeros = fields.U32() == 0 && zeros;
    push.sequence = fields.U64();
  }
  if (shard.shard != index) {
    return Corrupt("shard " + std::to_string(shard.shard) + " stands where " +
                   what + " should");
  }
  if (!zeros) return Corrupt(what + " has something where zeros belong");

  const auto floats = in.Take(sizeof(float) * entries);
  if (Status status = in.CheckCrc("the centre of " + what); !status.ok()) {
    return status.error();
  }
  shard.centre.resize(entries);
  if (entries > 0) {
    std::memcpy(shard.centre.data(), floats.data(), floats.size());
  }
  return shard;
}

}  // namespace

Status CheckSnapshotHeader(const SnapshotHeader& header) {
  const auto wrong = [](const std::string& why) {
    return Error{ErrorCode::kInvalidArgument, "a snapshot's " + why};
  };
  if (header.job.size() > kMaxIdBytes) {
    return wrong("job has an id of " + std::to_string(header.job.size()) +
                 " bytes; at most " + std::to_string(kMaxIdBytes) + " are");
  }
  if (header.layout.size() > std::numeric_limits<uint32_t>::max()) {
    return wrong("layout is longer than 4 GiB");
  }
  if (header.range.begin > header.range.end) {
    return wrong("range ends before it begins");
  }
  return Done{};
}

Bytes SnapshotHeaderBytes(const SnapshotHeader& header) {
  Bytes bytes;
  bytes.reserve(kHeaderFrontBytes + header.job.size() + header.layout.size() +
                kCrcBytes);
  FieldWriter out(bytes);
  out.Raw(std::as_bytes(std::span(kMagic)));
  out.U16(kFormat);
  out.U8(static_cast<uint8_t>(header.rule));
  out.U8(static_cast<uint8_t>(header.job.size()));
  out.U64(header.number);
  out.U32(header.range.begin);
  out.U32(header.range.end);
  out.U32(static_cast<uint32_t>(header.layout.size()));
  out.Raw(std::as_bytes(std::span(header.job)));
  out.Raw(header.layout);
  return bytes;
}

Bytes SnapshotShardBytes(const ShardSnapshot& shard) {
  Bytes bytes;
  bytes.reserve(kShardFrontBytes + kAppliedBytes * shard.applied.size() +
                kCrcBytes);
  FieldWriter out(bytes);
  out.U32(shard.shard);
  out.U32(static_cast<uint32_t>(shard.applied.size()));
  out.U64(shard.version);
  out.U32(static_cast<uint32_t>(shard.centre.size()));
  out.Raw(std::array<std::byte, kShardZeroBytes>{});
  for (const AppliedPush& applied : shard.applied) {
    out.U32(applied.rank);
    out.U32(0);
    out.U64(applied.sequence);
  }
  return bytes;
}

Bytes SnapshotEndBytes(uint64_t before) {
  Bytes bytes;
  FieldWriter out(bytes);
  out.Raw(std::as_bytes(std::span(kEndMagic)));
  out.U64(before + kEndBytes);
  return bytes;
}

Result<Snapshot> ParseSnapshot(std::span<const std::byte> bytes) {
  SummedReader in(bytes);
  Result<SnapshotHeader> header = ReadHeader(in);
  if (!header.ok()) return header.error();
  Snapshot snapshot;
  snapshot.header = std::move(*header);
  const ShardRange range = snapshot.header.range;
  if (in.left() / kShardFrontBytes < range.size()) {
    return Corrupt("it is cut off: " + std::to_string(bytes.size()) +
                   " bytes can't hold " + std::to_string(range.size()) +
                   " shards");
  }
  snapshot.shards.reserve(range.size());
  for (uint32_t index = range.begin; index < range.end; ++index) {
    Result<ShardSnapshot> shard = ReadShard(in, index);
    if (!shard.ok()) return shard.error();
    snapshot.shards.push_back(std::move(*shard));
  }
  FieldReader end(in.Take(kEndBytes - kCrcBytes));
  const auto magic = end.Raw(kEndMagic.size());
  const uint64_t length = end.U64();
  if (Status status = in.CheckCrc("its end"); !status.ok()) {
    return status.error();
  }
  if (!std::ranges::equal(magic, std::as_bytes(std::span(kEndMagic))) ||
      length != bytes.size() || in.left() != 0) {
    return Corrupt("it does not end where it says");
  }
  return snapshot;
}

}  // namespace tensorlightning
