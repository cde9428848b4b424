// The bytes of a snapshot file. SnapshotWriter writes them, ParseSnapshot()
// reads them.
//
// A snapshot file, byte by byte; numbers are little-endian:
//
//   header  0   4  "TLS1"
//           4   2  format, 1
//           6   1  rule
//           7   1  J, bytes of the job's id
//           8   8  number of the snapshot
//          16   4  first shard of the range
//          20   4  end of the range
//          24   4  L, bytes of the layout
//          28   J  job
//               L  layout
//               4  CRC
//   then for each shard of the range
//           0   4  index of the shard
//           4   4  A, workers with a push in it
//           8   8  version
//          16   4  E, entries of the centre
//          20  44  zero
//          64 16A  of each worker: rank (4), zero (4), sequence (8)
//               4  CRC
//              4E  the centre, as floats
//               4  CRC
//   end     0   4  "TLSE"
//           4   8  bytes of the file, these 16 among them
//          12   4  CRC
//
// A CRC is the CRC32C of all bytes of the file before it, but for the CRCs. It
// goes on from part to part because sums that begin anew would not notice a
// shard of another snapshot; and it leaves the CRCs out because a sum over a
// message and its own CRC is the same whatever the message.
//
// The zeros make no part smaller than what it becomes in memory: a reader that
// has seen the bytes of a part may allocate its objects.
#ifndef TENSORLIGHTNING_COMM_SNAPSHOT_FORMAT_H_
#define TENSORLIGHTNING_COMM_SNAPSHOT_FORMAT_H_

#include <cstdint>

#include "comm/messages.h"
#include "comm/snapshot.h"
#include "kernels/result.h"

namespace tensorlightning {

// Whether all of it fits into the fields of the format.
Status CheckSnapshotHeader(const SnapshotHeader& header);

// The parts, without their CRCs.
Bytes SnapshotHeaderBytes(const SnapshotHeader& header);
// Up to the centre.
Bytes SnapshotShardBytes(const ShardSnapshot& shard);
// `before`: bytes of the file so far.
Bytes SnapshotEndBytes(uint64_t before);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_SNAPSHOT_FORMAT_H_
