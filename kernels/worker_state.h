// One worker's side of an exchange, wherever its model lives: the view c and
// the residual r, in the memory of a CPU or of a GPU.
//
//   std::unique_ptr<WorkerState> state = MakeWorkerState(Place::kGpu, n);
//   state->Load(centre);                        // before the first step
//   Result<Emitted> push = state->Step(x, coefficients, compression, out);
//   ... send out[0, push->bytes); when the reply is there:
//   state->ApplyReply(*Message::Parse(reply, n));
//
// Both kinds give the same bits. Asked for a GPU where there is none, or in a
// build without CUDA, MakeWorkerState() says so in one line on stderr (once per
// process) and gives the CPU's.
#ifndef TENSORLIGHTNING_KERNELS_WORKER_STATE_H_
#define TENSORLIGHTNING_KERNELS_WORKER_STATE_H_

#include <cstddef>
#include <memory>
#include <span>

#include "kernels/decode.h"
#include "kernels/exchange.h"
#include "kernels/result.h"
#include "kernels/workspace.h"

namespace tensorlightning {

enum class Place { kCpu, kGpu };

// Not for several threads at once.
class WorkerState {
 public:
  virtual ~WorkerState() = default;

  virtual Place place() const = 0;
  virtual size_t entries() const = 0;

  // Starts from a view (host memory, finite) and an empty residual.
  virtual Status Load(std::span<const float> view) = 0;
  // Goes on from another view; what is owed stays owed.
  virtual Status Reload(std::span<const float> view) = 0;

  // WorkerStep() on x, which is in the memory of place() and has entries()
  // entries. The code goes to `out` in host memory, which needs room for
  // compression.MaxBytes(entries()).
  virtual Result<Emitted> Step(float* x, Coefficients coefficients,
                               const Compression& compression,
                               std::span<std::byte> out) = 0;

  // For who keeps its model: sends the largest of x - view, x stays, and
  // nothing is owed, since x has it still.
  virtual Result<Emitted> Mirror(const float* x, const Compression& compression,
                                 std::span<std::byte> out) = 0;

  // Adds the aggregator's reply to the view.
  virtual Status ApplyReply(const Message& reply) = 0;

  // Owes again what a push held that never arrived.
  virtual Status Owe(const Message& lost) = 0;

  // Copies of the state in host memory, entries() long.
  virtual Status ReadView(std::span<float> view) const = 0;
  virtual Status ReadResidual(std::span<float> residual) const = 0;
};

// States that are used in turns, never at once, may share the workspace that
// the CPU's needs; without one, each has its own.
std::unique_ptr<WorkerState> MakeWorkerState(
    Place wanted, size_t entries,
    std::shared_ptr<Workspace> workspace = nullptr);

// What a GPU implementation registers when it is linked in; an error says why
// there is no GPU to be had.
using GpuWorkerFactory =
    Result<std::unique_ptr<WorkerState>> (*)(size_t entries);
bool RegisterGpuWorker(GpuWorkerFactory factory);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_WORKER_STATE_H_
