// One shard of the centre, with every worker's view of it: the aggregator's
// half of the algorithm, without any I/O.
//
//   Init     the first weights
//   Pull     a worker's view becomes the centre
//   Push     C[S] += q, c_i[S] += q; the reply is the largest of C - c_i
//
// Each worker's pushes are numbered. Number n + 1 is applied after n; n again
// gets the stored reply again; everything is applied exactly once, whatever the
// network does. A worker is known by its rank: its last number stays when its
// view goes, so that one who comes back learns what of his has been applied.
//
// Not for several threads at once: a shard belongs to a strand. Whoever wants
// to read it asks there, and nobody ever waits on a lock.
#ifndef TENSORLIGHTNING_COMM_AGGREGATOR_CENTRE_SHARD_H_
#define TENSORLIGHTNING_COMM_AGGREGATOR_CENTRE_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/dense.h"
#include "comm/messages.h"
#include "comm/shards.h"
#include "comm/snapshot.h"
#include "kernels/exchange.h"
#include "kernels/result.h"

namespace tensorlightning {

class CentreShard {
 public:
  static constexpr uint32_t kMaxRanks = 1 << 16;

  // `durable_by_snapshot`: pushes count as safe only once MarkDurable() says
  // so; otherwise at once.
  CentreShard(uint32_t index, const Shard& shard, Rule rule,
              bool durable_by_snapshot);

  // Goes on from a snapshot of this shard.
  Status Restore(const ShardSnapshot& snapshot);

  bool has_centre() const { return has_centre_; }
  // The first weights; later ones are ignored. An error when they are not
  // finite or not as many as the shard's.
  Status Init(std::span<const float> weights);

  struct View {
    Standing standing;
    uint64_t applied;               // The worker's last push in it.
    std::span<const float> values;  // Valid until the worker's next call.
  };
  // None: nobody has brought the weights yet. From here on the worker counts
  // as present, until Drop().
  std::optional<View> Pull(uint32_t rank, const Compression& reply);

  enum class Verdict {
    kReply,    // Applied, or repeated: here is the reply.
    kWait,     // Applied; the reply comes when the round is complete.
    kIgnore,   // Older than the last: a ghost.
    kResync,   // A gap, or the view is gone.
    kRefused,  // Not applied: see `error`.
  };
  struct Pushed {
    Verdict verdict;
    std::optional<Error> error;
    bool fresh = false;  // Applied just now, not before.
    size_t entries = 0;  // As many.
  };
  Pushed Push(uint32_t rank, uint64_t sequence,
              std::span<const std::byte> code);

  struct Reply {
    Standing standing;  // In gradient-sync, live: how many are in the sum.
    uint64_t sequence;
    std::span<const std::byte> code;  // Valid until the worker's next call.
    size_t entries;
  };
  // The stored reply to the worker's last push.
  Reply LastReply(uint32_t rank) const;

  // Gradient-sync: the workers whose replies have become ready since this was
  // asked last. To be asked after every Push() and Drop().
  std::vector<uint32_t> TakeReady();

  // Frees the worker's view. Its last number is kept.
  void Drop(uint32_t rank);

  // Nothing when the worker has no view.
  std::optional<Digest> DigestFor(uint32_t rank) const;
  // `live` is left 0: that is not a shard's to say.
  Standing StandingOf(uint32_t rank) const;
  uint64_t AppliedOf(uint32_t rank) const;

  void CopyTo(ShardSnapshot& snapshot) const;
  void MarkDurable(std::span<const AppliedPush> applied);

 private:
  struct Slot {
    uint64_t applied = 0;
    uint64_t durable = 0;
    std::vector<float> view;  // Empty: none.
    std::vector<std::byte> reply;
    size_t reply_entries = 0;
    uint32_t reply_live = 0;
    Compression compression = DenseCompression(ValueCode::kFloat32);
    bool waiting = false;  // Pushed, and the round is not complete.
  };

  Slot& SlotOf(uint32_t rank);
  const Slot* Find(uint32_t rank) const;
  Status Apply(std::span<const std::byte> code, Slot& slot, size_t& entries);
  Status MakeReplyFor(Slot& slot);

  uint32_t index_;
  bool dense_;
  Rule rule_;
  bool durable_by_snapshot_;
  bool has_centre_ = false;
  uint64_t version_ = 0;
  std::vector<float> centre_;
  std::vector<std::unique_ptr<Slot>> slots_;  // By rank.
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_AGGREGATOR_CENTRE_SHARD_H_
