// Any bytes at all, as a snapshot from a disk: ParseSnapshot() answers with a
// snapshot or an error, and what it accepts are the only bytes that mean it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "comm/snapshot.h"
#include "tests/comm/snapshot_bytes.h"

namespace tensorlightning {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

// The first byte says what is mended, for else nothing would get past the first
// checksum: bit 0 the CRCs, bit 1 the length at the end. The rest is the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  // A copy of exactly this size, so that the sanitizer sees any byte too far.
  Bytes bytes(begin + 1, begin + size);
  constexpr size_t kLengthFromEnd = 12;
  if ((data[0] & 2) != 0 && bytes.size() >= kLengthFromEnd) {
    const uint64_t length = bytes.size();
    std::memcpy(&bytes[bytes.size() - kLengthFromEnd], &length, sizeof(length));
  }
  if ((data[0] & 1) != 0) testing::MendCrcs(bytes);

  const Result<Snapshot> snapshot = ParseSnapshot(bytes);
  if (!snapshot.ok()) {
    Require(!snapshot.error().message.empty());
    return 0;
  }
  Require(snapshot->shards.size() == snapshot->header.range.size());
  Require(testing::SnapshotBytes(*snapshot) == bytes);
  return 0;
}

}  // namespace tensorlightning
