// The bytes of a snapshot, written a second time from the description in
// comm/snapshot_format.h alone: what the writer's files and the parser's
// results are compared with, and a way past the checksums for hostile bytes.
#ifndef TENSORLIGHTNING_TESTS_COMM_SNAPSHOT_BYTES_H_
#define TENSORLIGHTNING_TESTS_COMM_SNAPSHOT_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>

#include "comm/crc32c.h"
#include "comm/snapshot.h"

namespace tensorlightning::testing {

template <typename T>
void Append(Bytes& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(
        static_cast<std::byte>(static_cast<uint64_t>(value) >> 8 * i));
  }
}

inline void AppendText(Bytes& out, std::string_view text) {
  for (const char c : text) out.push_back(static_cast<std::byte>(c));
}

// The number at `at`, or 0 if the bytes end before.
template <typename T>
T At(const Bytes& bytes, size_t at) {
  T value = 0;
  if (bytes.size() >= sizeof(T) && at <= bytes.size() - sizeof(T)) {
    std::memcpy(&value, &bytes[at], sizeof(T));
  }
  return value;
}

// Calls part(begin, crc) for each part as the lengths in the bytes have it:
// where it begins and where its CRC is. Ends where the bytes do.
inline void WalkParts(const Bytes& bytes,
                      const std::function<void(size_t, size_t)>& part) {
  size_t at = 0;
  const auto walk = [&](size_t length) {
    if (length > bytes.size() || at + length + 4 > bytes.size()) return false;
    part(at, at + length);
    at += length + 4;
    return true;
  };
  if (bytes.size() < 28) return;
  const auto first = At<uint32_t>(bytes, 16);
  const auto end = At<uint32_t>(bytes, 20);
  if (!walk(28 + At<uint8_t>(bytes, 7) + size_t{At<uint32_t>(bytes, 24)})) {
    return;
  }
  for (uint32_t shard = first; shard < end; ++shard) {
    const size_t workers = At<uint32_t>(bytes, at + 4);
    const size_t entries = At<uint32_t>(bytes, at + 16);
    if (!walk(64 + 16 * workers) || !walk(4 * entries)) return;
  }
  walk(12);
}

// Puts the right CRC wherever one belongs.
inline void MendCrcs(Bytes& bytes) {
  uint32_t crc = 0;
  WalkParts(bytes, [&](size_t begin, size_t end) {
    crc = Crc32c(std::span(bytes).subspan(begin, end - begin), crc);
    std::memcpy(&bytes[end], &crc, sizeof(crc));
  });
}

inline Bytes SnapshotBytes(const Snapshot& snapshot) {
  const SnapshotHeader& header = snapshot.header;
  Bytes out;
  AppendText(out, "TLS1");
  Append<uint16_t>(out, 1);
  Append(out, static_cast<uint8_t>(header.rule));
  Append(out, static_cast<uint8_t>(header.job.size()));
  Append(out, header.number);
  Append(out, header.range.begin);
  Append(out, header.range.end);
  Append(out, static_cast<uint32_t>(header.layout.size()));
  AppendText(out, header.job);
  out.insert(out.end(), header.layout.begin(), header.layout.end());
  Append<uint32_t>(out, 0);  // A CRC, mended below.
  for (const ShardSnapshot& shard : snapshot.shards) {
    Append(out, shard.shard);
    Append(out, static_cast<uint32_t>(shard.applied.size()));
    Append(out, shard.version);
    Append(out, static_cast<uint32_t>(shard.centre.size()));
    out.resize(out.size() + 44);
    for (const AppliedPush& push : shard.applied) {
      Append(out, push.rank);
      Append<uint32_t>(out, 0);
      Append(out, push.sequence);
    }
    Append<uint32_t>(out, 0);
    const auto floats = std::as_bytes(std::span(shard.centre));
    out.insert(out.end(), floats.begin(), floats.end());
    Append<uint32_t>(out, 0);
  }
  AppendText(out, "TLSE");
  Append(out, uint64_t{out.size() + 12});
  Append<uint32_t>(out, 0);
  MendCrcs(out);
  return out;
}

}  // namespace tensorlightning::testing

#endif  // TENSORLIGHTNING_TESTS_COMM_SNAPSHOT_BYTES_H_
