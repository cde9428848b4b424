// The aggregator's memory on disk: the centre, and of every worker how far its
// pushes are in it.
//
//   folder/snapshot-00000000000000000042.tls     the newest, whole
//   folder/snapshot-00000000000000000041.tls     the one before it
//   folder/snapshot-...tmp                       being written
//
// A snapshot is written to a .tmp file, flushed to disk, renamed, and only then
// are all but the newest kKeptSnapshots removed: at every moment a whole one is
// there. Every part has a CRC32C. Reading takes the newest that is whole, and
// says of each newer one why it is not.
#ifndef TENSORLIGHTNING_COMM_SNAPSHOT_H_
#define TENSORLIGHTNING_COMM_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/layout.h"
#include "comm/messages.h"
#include "comm/shards.h"
#include "kernels/result.h"

namespace tensorlightning {

// What a snapshot begins with.
struct SnapshotHeader {
  std::string job;
  Rule rule = Rule::kAverage;
  Bytes layout;  // Layout::Serialise()
  ShardRange range;
  uint64_t number = 0;  // Counts up.
};

// One worker's standing in one shard.
struct AppliedPush {
  uint32_t rank = 0;
  uint64_t sequence = 0;  // The last that was applied.

  bool operator==(const AppliedPush&) const = default;
};

struct ShardSnapshot {
  uint32_t shard = 0;
  uint64_t version = 0;  // Pushes applied.
  std::vector<AppliedPush> applied;
  std::vector<float> centre;
};

inline constexpr int kKeptSnapshots = 2;

// Writes one snapshot, shard by shard.
//
//   Result<SnapshotWriter> writer = SnapshotWriter::Create(folder, header);
//   for each shard of header.range, in order: writer->Add(shard);
//   writer->Commit();
//
// Any error (a full disk, say) names the path and the reason; the .tmp file is
// removed by it and by the destructor, and earlier snapshots are untouched.
class SnapshotWriter {
 public:
  static Result<SnapshotWriter> Create(const std::string& folder,
                                       const SnapshotHeader& header);
  SnapshotWriter(SnapshotWriter&&) noexcept;
  SnapshotWriter& operator=(SnapshotWriter&&) noexcept;
  ~SnapshotWriter();

  Status Add(const ShardSnapshot& shard);
  // The path of the snapshot, which is now safe on disk.
  Result<std::string> Commit();

 private:
  struct Impl;
  explicit SnapshotWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct Snapshot {
  SnapshotHeader header;
  std::vector<ShardSnapshot> shards;  // All of header.range, in order.
};

// The bytes of a snapshot file: any bytes at all give a snapshot or an error,
// and no allocation larger than they are.
Result<Snapshot> ParseSnapshot(std::span<const std::byte> bytes);

struct FoundSnapshot {
  std::optional<Snapshot> snapshot;  // None: there is no whole one.
  std::string path;
  std::vector<std::string> damaged;  // "PATH: why", newest first.
  uint64_t next_number = 1;          // For the next one to be written.
};
// The newest whole snapshot in the folder. An error only when the folder can't
// be read; one that does not exist is empty.
Result<FoundSnapshot> FindSnapshot(const std::string& folder);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_SNAPSHOT_H_
