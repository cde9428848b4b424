// The two halves of an exchange, and plain compression with error feedback.
//
//   worker                                 aggregator
//   d = x - c                              C[S] += q;  c[S] += q   ApplyPush
//   x -= pull * d;  r += push * d          g = C - c
//   S = select(r);  q = quantise(r[S])     S' = select(g);  q' = quantise(...)
//   r[S] -= q;  c[S] += q                  c[S'] += q'
//   send (S, q)           WorkerStep       reply (S', q')          MakeReply
//   ... c[S'] += q'       DecodeAdd
//
// x: the worker's model. c: its view of the centre, the same bits at both ends
// after every exchange. r: what it still owes the centre. C: the centre.
// push = pull = beta / p is elastic averaging; push = 1 / p, pull = 1 is local
// SGD: once its push is in the view, x restarts from the view.
//
// Each is one pass over memory, chunk by chunk, on the calling thread (global
// top-k needs two). Nothing is allocated once the workspace has grown.
//
// NaN, Inf and magnitudes from 2^100 on in what comes from outside (x, g, and
// pushes, which Message::Parse() checks) are refused before anything is
// written. The state (c, r, C) is finite as long as only these functions write
// it, and is not read twice to make sure: should it hold a NaN or Inf all the
// same, that is noticed at the chunk where it is, an error names the vector,
// and nothing is sent; earlier chunks have been worked on by then, and the
// state must be loaded anew.
#ifndef TENSORLIGHTNING_KERNELS_EXCHANGE_H_
#define TENSORLIGHTNING_KERNELS_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/code_format.h"
#include "kernels/decode.h"
#include "kernels/quantise.h"
#include "kernels/result.h"
#include "kernels/select.h"
#include "kernels/workspace.h"

namespace tensorlightning {

struct Coefficients {
  float push;  // Share of the difference that is booked for the centre.
  float pull;  // Share by which x moves toward the view.

  // An error unless both are from 0 to 1.
  Status Check() const;
};

struct Compression {
  SelectionRule rule;
  ValueCode values;

  // An error unless a vector of n entries can be compressed like this.
  Status Check(size_t n) const;
  // Room that `out` must have for a vector of n entries.
  size_t MaxBytes(size_t n) const {
    return MaxCodeBytes(n, rule.MaxKept(n), values);
  }
};

struct Emitted {
  size_t bytes;  // Written to `out`.
  size_t kept;   // Entries in them.
};

Result<Emitted> WorkerStep(std::span<float> x, std::span<float> c,
                           std::span<float> r, Coefficients coefficients,
                           const Compression& compression, Workspace& workspace,
                           std::span<std::byte> out);

// An error when push.entries() differs from the vectors' size, or the push is
// huge().
Status ApplyPush(const Message& push, std::span<float> centre,
                 std::span<float> view);

// An error when the message is huge(): what is added to state must not be.
Status CheckNotHuge(const Message& message, const char* what);

Result<Emitted> MakeReply(std::span<const float> centre, std::span<float> view,
                          const Compression& compression, Workspace& workspace,
                          std::span<std::byte> out);

// r += g (an empty g: nothing to add); the selected part of r goes out and
// leaves r. With everything selected and float32, a lossless encoder.
Result<Emitted> Compress(std::span<float> r, std::span<const float> g,
                         const Compression& compression, Workspace& workspace,
                         std::span<std::byte> out);

// Threshold pruning into bare index and value arrays: r += g; entries with
// |r| >= threshold move to indices and values, which need room for all of r
// and cpu::kVectorSlack more. How many moved.
Result<size_t> Prune(std::span<float> r, std::span<const float> g,
                     float threshold, std::span<uint32_t> indices,
                     std::span<float> values);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_EXCHANGE_H_
