// Kernels of the ops that exchange variables and gradients; exchange_op_defs.cc
// has their interfaces. An op that waits runs on a thread of its own, gives up
// after its time, when its step is cancelled, and on Ctrl-C.
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/worker/worker.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/status.h"
#include "tf_ops/variables.h"
#include "tf_ops/workers.h"

namespace tensorlightning {
namespace {

namespace tf = tensorflow;
using tf::OpKernelConstruction;
using tf::OpKernelContext;

// How often an op that waits for another looks whether it was cancelled.
constexpr std::chrono::milliseconds kLookUp{50};

absl::Status ToTensorFlow(const Status& status) {
  return status.ok() ? absl::OkStatus() : ToTensorFlow(status.error());
}

absl::Status FindWorkerOf(OpKernelContext* ctx,
                          std::shared_ptr<SharedWorker>& found) {
  const tf::Tensor& input = ctx->input(0);
  if (input.NumElements() != 1) {
    return absl::InvalidArgumentError(
        "a worker is one number, not a tensor of " +
        input.shape().DebugString());
  }
  const int64_t number = input.flat<int64_t>()(0);
  found = FindWorker(number);
  if (found != nullptr) return absl::OkStatus();
  return absl::NotFoundError("there is no worker " + std::to_string(number) +
                             " in this process: it has left, or never joined");
}

template <typename T>
absl::Status SetScalar(OpKernelContext* ctx, const T& value) {
  tf::Tensor* output = nullptr;
  absl::Status status = ctx->allocate_output(0, {}, &output);
  if (status.ok()) output->scalar<T>()() = value;
  return status;
}

absl::Status SetResult(OpKernelContext* ctx, const Result<bool>& result) {
  return result.ok() ? SetScalar(ctx, *result) : ToTensorFlow(result.error());
}

// ---- Ops that never wait. ---------------------------------------------------

class JoinOp final : public tf::OpKernel {
 public:
  explicit JoinOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("names", &names_));
  }

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, Join(ctx));
  }

 private:
  absl::Status Join(OpKernelContext* ctx) {
    const tf::Tensor& text = ctx->input(0);
    if (text.NumElements() != 1) {
      return absl::InvalidArgumentError("the options are one string");
    }
    const std::string settings(text.flat<tf::tstring>()(0));
    Result<WorkerOptions> options = WorkerOptions::Parse(settings);
    if (!options.ok()) return ToTensorFlow(options.error());
    Variables variables;
    absl::Status status = Variables::Find(ctx, 1, &variables);
    if (!status.ok()) return status;
    const Result<Layout> layout = variables.MakeLayout(names_);
    if (!layout.ok()) return ToTensorFlow(layout.error());
    HostCopy copy;
    status = variables.Read(copy);
    if (!status.ok()) return status;
    auto shared = std::make_shared<SharedWorker>();
    const std::weak_ptr<SharedWorker> weak = shared;
    Result<std::unique_ptr<Worker>> worker =
        Worker::Begin(std::move(*options), *layout, copy.tensors(), [weak] {
          const std::shared_ptr<SharedWorker> owner = weak.lock();
          return InterruptWatch::Interrupted() ||
                 (owner != nullptr && owner->cancelled.load());
        });
    if (!worker.ok()) return ToTensorFlow(worker.error());
    shared->worker = std::move(*worker);
    return SetScalar(ctx, AddWorker(std::move(shared)));
  }

  std::vector<std::string> names_;
};

class StepOp final : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, Step(ctx));
  }

 private:
  static absl::Status Step(OpKernelContext* ctx) {
    std::shared_ptr<SharedWorker> shared;
    absl::Status status = FindWorkerOf(ctx, shared);
    if (!status.ok()) return status;
    const tf::Tensor& steps = ctx->input(1);
    if (steps.NumElements() != 1 || steps.flat<int64_t>()(0) < 0) {
      return absl::InvalidArgumentError("the number of steps is one, from 0");
    }
    const auto taken = static_cast<uint64_t>(steps.flat<int64_t>()(0));
    Variables variables;
    status = Variables::Find(ctx, 2, &variables);
    if (!status.ok()) return status;
    const std::unique_lock lock(shared->mutex, std::try_to_lock);
    if (!lock.owns_lock()) {
      // Another op waits for the network; this one does not wait for it.
      shared->steps_missed.fetch_add(taken);
      return SetScalar(ctx, false);
    }
    const uint64_t steps_by_now = taken + shared->steps_missed.exchange(0);
    return variables.InPlace([&](Tensors tensors) {
      return SetResult(ctx, shared->worker->Step(tensors, steps_by_now));
    });
  }
};

class ExchangeOp final : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, Exchange(ctx));
  }

 private:
  static absl::Status Exchange(OpKernelContext* ctx) {
    std::shared_ptr<SharedWorker> shared;
    absl::Status status = FindWorkerOf(ctx, shared);
    if (!status.ok()) return status;
    Variables variables;
    status = Variables::Find(ctx, 1, &variables);
    if (!status.ok()) return status;
    const std::unique_lock lock(shared->mutex, std::try_to_lock);
    if (!lock.owns_lock()) return SetScalar(ctx, false);
    return variables.InPlace([&](Tensors tensors) {
      return SetResult(ctx, shared->worker->Exchange(tensors));
    });
  }
};

class LeaveOp final : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const tf::Tensor& worker = ctx->input(0);
    OP_REQUIRES(ctx, worker.NumElements() == 1,
                absl::InvalidArgumentError("a worker is one number"));
    RemoveWorker(worker.flat<int64_t>()(0));
  }
};

enum class Fact { kRank, kSize, kStatistics };

template <Fact fact>
class FactOp final : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    std::shared_ptr<SharedWorker> shared;
    const absl::Status found = FindWorkerOf(ctx, shared);
    if constexpr (fact == Fact::kStatistics) {
      // Also of one that has left.
      const tf::Tensor& number = ctx->input(0);
      const std::string text = found.ok() ? shared->worker->StatisticsJson()
                               : number.NumElements() == 1
                                   ? LastStatistics(number.flat<int64_t>()(0))
                                   : "";
      if (text.empty()) OP_REQUIRES_OK(ctx, found);
      OP_REQUIRES_OK(ctx, SetScalar(ctx, tf::tstring(text)));
    } else {
      OP_REQUIRES_OK(ctx, found);
      const Worker& worker = *shared->worker;
      const uint32_t number =
          fact == Fact::kRank ? worker.rank() : worker.live();
      OP_REQUIRES_OK(ctx, SetScalar(ctx, static_cast<int32_t>(number)));
    }
  }
};

// ---- Ops that wait. ---------------------------------------------------------

class WaitingOp : public tf::AsyncOpKernel {
 public:
  explicit WaitingOp(OpKernelConstruction* ctx) : AsyncOpKernel(ctx) {
    if (!ctx->HasAttr("timeout_s")) return;
    float seconds = 0.0f;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("timeout_s", &seconds));
    OP_REQUIRES(ctx, seconds >= 0.0f && seconds <= 1e6f,
                absl::InvalidArgumentError("timeout_s is from 0 to a million"));
    timeout_ = std::chrono::milliseconds(std::lround(seconds * 1e3f));
  }

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) final {
    std::shared_ptr<SharedWorker> shared;
    OP_REQUIRES_OK_ASYNC(ctx, FindWorkerOf(ctx, shared), done);
    ctx->env()->SchedClosure([this, ctx, shared = std::move(shared), done] {
      absl::Status status = Watched(ctx, *shared);
      if (!status.ok()) ctx->SetStatus(status);
      done();
    });
  }

 protected:
  virtual absl::Status Run(OpKernelContext* ctx, Worker& worker) = 0;

  std::chrono::milliseconds timeout_{0};

 private:
  absl::Status Watched(OpKernelContext* ctx, SharedWorker& shared) {
    tf::CancellationManager* const cancellation = ctx->cancellation_manager();
    const InterruptWatch watch;
    std::unique_lock lock(shared.mutex, std::defer_lock);
    while (!lock.try_lock_for(kLookUp)) {
      if (InterruptWatch::Interrupted() ||
          (cancellation != nullptr && cancellation->IsCancelled())) {
        return absl::CancelledError("interrupted while another op waits");
      }
    }
    tf::CancellationToken token{};
    if (cancellation != nullptr) {
      token = cancellation->get_cancellation_token();
      const bool registered = cancellation->RegisterCallback(
          token, [&shared] { shared.cancelled.store(true); });
      if (!registered) return absl::CancelledError("the step was cancelled");
    }
    absl::Status status = Run(ctx, *shared.worker);
    // From here on nobody cancels anything on this op's behalf.
    if (cancellation != nullptr) cancellation->DeregisterCallback(token);
    const bool cancelled = shared.cancelled.exchange(false);
    if (!status.ok() && (cancelled || InterruptWatch::Interrupted())) {
      return absl::CancelledError("interrupted while waiting: " +
                                  std::string(status.message()));
    }
    return status;
  }
};

class JoinedOp final : public WaitingOp {
 public:
  using WaitingOp::WaitingOp;

 protected:
  absl::Status Run(OpKernelContext* ctx, Worker& worker) override {
    Variables variables;
    absl::Status status = Variables::Find(ctx, 1, &variables);
    if (!status.ok()) return status;
    HostCopy copy;
    status = variables.Read(copy);
    if (!status.ok()) return status;
    const Result<bool> joined = worker.Joined(copy.tensors(), timeout_);
    if (joined.ok() && *joined) {
      status = variables.Write(copy);
      if (!status.ok()) return status;
    }
    return SetResult(ctx, joined);
  }
};

class WaitOp final : public WaitingOp {
 public:
  using WaitingOp::WaitingOp;

 protected:
  absl::Status Run(OpKernelContext* ctx, Worker& worker) override {
    return SetResult(ctx, worker.Wait(timeout_));
  }
};

class PullOp final : public WaitingOp {
 public:
  using WaitingOp::WaitingOp;

 protected:
  absl::Status Run(OpKernelContext* ctx, Worker& worker) override {
    Variables variables;
    absl::Status status = Variables::Find(ctx, 1, &variables);
    HostCopy copy;
    if (status.ok()) status = variables.Read(copy);
    if (status.ok()) status = ToTensorFlow(worker.Pull(copy.tensors()));
    if (status.ok()) status = variables.Write(copy);
    return status;
  }
};

class FinishOp final : public WaitingOp {
 public:
  explicit FinishOp(OpKernelConstruction* ctx) : WaitingOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("own", &own_));
  }

 protected:
  absl::Status Run(OpKernelContext* ctx, Worker& worker) override {
    Variables variables;
    absl::Status status = Variables::Find(ctx, 1, &variables);
    HostCopy copy;
    if (status.ok()) status = variables.Read(copy);
    if (status.ok()) {
      status = ToTensorFlow(worker.Finish(copy.tensors(), own_));
    }
    if (status.ok()) status = variables.Write(copy);
    // This op still holds it.
    RemoveWorker(ctx->input(0).flat<int64_t>()(0));
    return status;
  }

 private:
  bool own_ = false;
};

class AverageGradientsOp final : public WaitingOp {
 public:
  using WaitingOp::WaitingOp;

 protected:
  absl::Status Run(OpKernelContext* ctx, Worker& worker) override {
    HostCopy copy;
    copy.values.resize(static_cast<size_t>(ctx->num_inputs()) - 1);
    for (int i = 1; i < ctx->num_inputs(); ++i) {
      absl::Status status =
          ToHost(ctx, ctx->input(i), copy.values[static_cast<size_t>(i) - 1]);
      if (!status.ok()) return status;
    }
    absl::Status status = ToTensorFlow(worker.AverageGradients(copy.tensors()));
    for (int i = 1; i < ctx->num_inputs() && status.ok(); ++i) {
      tf::Tensor* output = nullptr;
      status = ctx->allocate_output(i - 1, ctx->input(i).shape(), &output);
      if (status.ok()) {
        status =
            FromHost(ctx, copy.values[static_cast<size_t>(i) - 1], *output);
      }
    }
    return status;
  }
};

// ---- Registrations. ---------------------------------------------------------

// Resources are in host memory everywhere; on a GPU the variables that they
// name are not, and are copied.
REGISTER_KERNEL_BUILDER(Name("TlJoin").Device(tf::DEVICE_CPU), JoinOp);
REGISTER_KERNEL_BUILDER(Name("TlJoin")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("options")
                            .HostMemory("worker"),
                        JoinOp);
REGISTER_KERNEL_BUILDER(Name("TlJoined").Device(tf::DEVICE_CPU), JoinedOp);
REGISTER_KERNEL_BUILDER(Name("TlJoined")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("worker")
                            .HostMemory("joined"),
                        JoinedOp);
REGISTER_KERNEL_BUILDER(Name("TlStep").Device(tf::DEVICE_CPU), StepOp);
REGISTER_KERNEL_BUILDER(Name("TlStep")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("worker")
                            .HostMemory("steps")
                            .HostMemory("started"),
                        StepOp);
REGISTER_KERNEL_BUILDER(Name("TlExchange").Device(tf::DEVICE_CPU), ExchangeOp);
REGISTER_KERNEL_BUILDER(Name("TlExchange")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("worker")
                            .HostMemory("started"),
                        ExchangeOp);
REGISTER_KERNEL_BUILDER(Name("TlPull").Device(tf::DEVICE_CPU), PullOp);
REGISTER_KERNEL_BUILDER(
    Name("TlPull").Device(tf::DEVICE_GPU).HostMemory("worker"), PullOp);
REGISTER_KERNEL_BUILDER(Name("TlFinish").Device(tf::DEVICE_CPU), FinishOp);
REGISTER_KERNEL_BUILDER(
    Name("TlFinish").Device(tf::DEVICE_GPU).HostMemory("worker"), FinishOp);
REGISTER_KERNEL_BUILDER(Name("TlAverageGradients").Device(tf::DEVICE_CPU),
                        AverageGradientsOp);
REGISTER_KERNEL_BUILDER(
    Name("TlAverageGradients").Device(tf::DEVICE_GPU).HostMemory("worker"),
    AverageGradientsOp);
REGISTER_KERNEL_BUILDER(Name("TlWait").Device(tf::DEVICE_CPU), WaitOp);
REGISTER_KERNEL_BUILDER(Name("TlLeave").Device(tf::DEVICE_CPU), LeaveOp);
REGISTER_KERNEL_BUILDER(Name("TlRank").Device(tf::DEVICE_CPU),
                        FactOp<Fact::kRank>);
REGISTER_KERNEL_BUILDER(Name("TlSize").Device(tf::DEVICE_CPU),
                        FactOp<Fact::kSize>);
REGISTER_KERNEL_BUILDER(Name("TlStatistics").Device(tf::DEVICE_CPU),
                        FactOp<Fact::kStatistics>);

}  // namespace
}  // namespace tensorlightning
