// The parts of the benchmark of comm: each is a command of the program
// bench/comm. bench/comm.py runs them beside iperf3, OpenSSL, tl-aggregator and
// tl-load, and does the sums.
//
// A part prints what it measures as lines of JSON, one a turn. It says on
// stderr why it can't, and then ends with 1, or with 2 if it was called
// wrongly.
#ifndef TENSORLIGHTNING_BENCH_COMM_H_
#define TENSORLIGHTNING_BENCH_COMM_H_

#include <span>

#include "comm/flags.h"
#include "comm/log.h"
#include "kernels/result.h"

namespace tensorlightning::bench {

using Arguments = std::span<const char* const>;

// Frames of many MiB through a Channel: a process for either end.
Status ReceiveBulk(Arguments arguments);
Status SendBulk(Arguments arguments);
// Exchanges of about 1 KiB each way, in turns with an echo of the same bytes.
Status RoundTrip(Arguments arguments);
// Exchanges of a large model with a tl-aggregator: its time on the processor,
// in turns with that of the kernels for the same pushes.
Status Apply(Arguments arguments);
// A loop that computes, in turns alone and with exchanges under way.
Status Overlap(Arguments arguments);

// Ends the program if all that is wanted is help.
Status Parse(Flags& flags, Arguments arguments);

// Where lines of JSON go: Output().Info("turn", {{"seconds", 1.5}}).
inline Log Output() { return Log(1, LogLevel::kInfo, Log::Format::kJson); }

}  // namespace tensorlightning::bench

#endif  // TENSORLIGHTNING_BENCH_COMM_H_
