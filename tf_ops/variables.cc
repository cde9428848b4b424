#include "tf_ops/variables.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensorflow/core/framework/bfloat16.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/mutex.h"

namespace tensorlightning {
namespace {

namespace tf = tensorflow;

// Runs `work` with a value of the tensor's element type. An error for others.
template <typename Work>
absl::Status WithType(tf::DataType type, Work work) {
  switch (type) {
    case tf::DT_FLOAT:
      work(float{});
      return absl::OkStatus();
    case tf::DT_HALF:
      work(Eigen::half{});
      return absl::OkStatus();
    case tf::DT_BFLOAT16:
      work(tf::bfloat16{});
      return absl::OkStatus();
    case tf::DT_DOUBLE:
      work(double{});
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          "a tensor of " + tf::DataTypeString(type) +
          ": float32, float16, bfloat16 and float64 can be exchanged");
  }
}

DType DTypeOf(tf::DataType type) {
  switch (type) {
    case tf::DT_HALF:
      return DType::kFloat16;
    case tf::DT_BFLOAT16:
      return DType::kBfloat16;
    case tf::DT_DOUBLE:
      return DType::kFloat64;
    default:
      return DType::kFloat32;
  }
}

bool OnCpu(const tf::OpKernelContext* ctx) {
  return ctx->device()->device_type() == tf::DEVICE_CPU;
}

tf::Device* DeviceOf(tf::OpKernelContext* ctx) {
  return static_cast<tf::Device*>(ctx->device());
}

// The tensor itself on the CPU; a copy of one on a GPU.
absl::Status CpuTensor(tf::OpKernelContext* ctx, const tf::Tensor& tensor,
                       tf::Tensor& cpu) {
  if (OnCpu(ctx)) {
    cpu = tensor;
    return absl::OkStatus();
  }
  cpu = tf::Tensor(tensor.dtype(), tensor.shape());
  return ctx->op_device_context()->CopyDeviceTensorToCPUSync(
      &tensor, "tensorlightning", DeviceOf(ctx), &cpu);
}

absl::Status ToDevice(tf::OpKernelContext* ctx, const tf::Tensor& cpu,
                      tf::Tensor& tensor) {
  return ctx->op_device_context()->CopyCPUTensorToDeviceSync(
      &cpu, DeviceOf(ctx), &tensor);
}

// Adds to a tensor in host memory what has changed from `before` to `after`.
absl::Status AddChange(std::span<const float> before,
                       std::span<const float> after, tf::Tensor& cpu) {
  return WithType(cpu.dtype(), [&](auto sample) {
    using T = decltype(sample);
    auto flat = cpu.flat<T>();
    for (size_t i = 0; i < after.size(); ++i) {
      if (after[i] == before[i]) continue;
      const double change = double{after[i]} - before[i];
      flat(i) = static_cast<T>(static_cast<double>(flat(i)) + change);
    }
  });
}

// So that nobody who holds the old value sees it change.
absl::Status MakeOwn(tf::OpKernelContext* ctx, tf::Var& variable) {
  tf::Tensor* const tensor = variable.tensor();
  if (variable.copy_on_read_mode.load() || tensor->RefCountIsOne()) {
    return absl::OkStatus();
  }
  tf::Tensor own;
  absl::Status status =
      ctx->allocate_temp(tensor->dtype(), tensor->shape(), &own);
  if (!status.ok()) return status;
  if (OnCpu(ctx)) {
    std::memcpy(own.data(), tensor->data(), tensor->TotalBytes());
  }  // On a GPU all of it is written anew in any case.
  *tensor = std::move(own);
  return absl::OkStatus();
}

}  // namespace

Tensors HostCopy::tensors() {
  spans_.assign(values.begin(), values.end());
  return spans_;
}

absl::Status ToHost(tf::OpKernelContext* ctx, const tf::Tensor& tensor,
                    std::vector<float>& host) {
  tf::Tensor cpu;
  absl::Status status = CpuTensor(ctx, tensor, cpu);
  if (!status.ok()) return status;
  host.resize(static_cast<size_t>(cpu.NumElements()));
  return WithType(cpu.dtype(), [&](auto sample) {
    const auto flat = cpu.flat<decltype(sample)>();
    for (size_t i = 0; i < host.size(); ++i) {
      host[i] = static_cast<float>(flat(i));
    }
  });
}

absl::Status FromHost(tf::OpKernelContext* ctx, std::span<const float> host,
                      tf::Tensor& tensor) {
  tf::Tensor cpu =
      OnCpu(ctx) ? tensor : tf::Tensor(tensor.dtype(), tensor.shape());
  absl::Status status = WithType(cpu.dtype(), [&](auto sample) {
    using T = decltype(sample);
    auto flat = cpu.flat<T>();
    for (size_t i = 0; i < host.size(); ++i) flat(i) = static_cast<T>(host[i]);
  });
  if (!status.ok() || OnCpu(ctx)) return status;
  return ToDevice(ctx, cpu, tensor);
}

// Everybody locks in the order of addresses: nobody waits in a circle.
class Variables::Locks {
 public:
  explicit Locks(const Variables& variables) {
    for (const auto& variable : variables.variables_) {
      mutexes_.push_back(variable->mu());
    }
    std::sort(mutexes_.begin(), mutexes_.end());
    mutexes_.erase(std::unique(mutexes_.begin(), mutexes_.end()),
                   mutexes_.end());
    for (auto* mutex : mutexes_) mutex->lock();
  }
  ~Locks() {
    for (auto* mutex : mutexes_) mutex->unlock();
  }
  Locks(const Locks&) = delete;
  Locks& operator=(const Locks&) = delete;

 private:
  // TensorFlow calls the name of its mutex deprecated, and has no other.
  std::vector<decltype(std::declval<tf::Var&>().mu())> mutexes_;
};

absl::Status Variables::Find(tf::OpKernelContext* ctx, int first,
                             Variables* found) {
  found->ctx_ = ctx;
  found->variables_.clear();
  for (int i = first; i < ctx->num_inputs(); ++i) {
    tf::core::RefCountPtr<tf::Var> variable;
    absl::Status status =
        tf::LookupResource(ctx, tf::HandleFromInput(ctx, i), &variable);
    if (!status.ok()) return status;
    const tf::tf_shared_lock lock(*variable->mu());
    if (!variable->is_initialized) {
      return absl::FailedPreconditionError(
          "variable " + std::to_string(i - first) + " (" +
          tf::HandleFromInput(ctx, i).name() + ") has no value yet");
    }
    status = WithType(variable->tensor()->dtype(), [](auto) {});
    if (!status.ok()) return status;
    found->variables_.push_back(std::move(variable));
  }
  return absl::OkStatus();
}

Result<Layout> Variables::MakeLayout(
    const std::vector<std::string>& names) const {
  if (names.size() != variables_.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 std::to_string(names.size()) + " names for " +
                     std::to_string(variables_.size()) + " variables"};
  }
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < names.size(); ++i) {
    const tf::tf_shared_lock lock(*variables_[i]->mu());
    const tf::Tensor& value = *variables_[i]->tensor();
    Tensor tensor{names[i], {}, DTypeOf(value.dtype())};
    for (const int64_t dimension : value.shape().dim_sizes()) {
      tensor.shape.push_back(static_cast<uint64_t>(dimension));
    }
    tensors.push_back(std::move(tensor));
  }
  return Layout::Make(std::move(tensors));
}

absl::Status Variables::Read(HostCopy& copy) const {
  copy.values.resize(variables_.size());
  for (size_t i = 0; i < variables_.size(); ++i) {
    const tf::tf_shared_lock lock(*variables_[i]->mu());
    absl::Status status =
        ToHost(ctx_, *variables_[i]->tensor(), copy.values[i]);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Variables::Write(const HostCopy& copy) {
  const Locks locks(*this);
  for (size_t i = 0; i < variables_.size(); ++i) {
    absl::Status status = MakeOwn(ctx_, *variables_[i]);
    if (status.ok()) {
      status = FromHost(ctx_, copy.values[i], *variables_[i]->tensor());
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool Variables::IsDirect(const tf::Tensor& tensor) const {
  return OnCpu(ctx_) && tensor.dtype() == tf::DT_FLOAT;
}

absl::Status Variables::InPlace(
    const std::function<absl::Status(Tensors)>& work) {
  const Locks locks(*this);
  std::vector<std::vector<float>> staged(variables_.size());
  std::vector<std::vector<float>> before(variables_.size());
  std::vector<std::span<float>> spans;
  for (size_t i = 0; i < variables_.size(); ++i) {
    tf::Tensor& tensor = *variables_[i]->tensor();
    if (IsDirect(tensor)) {
      absl::Status status = MakeOwn(ctx_, *variables_[i]);
      if (!status.ok()) return status;
      auto flat = tensor.flat<float>();
      spans.emplace_back(flat.data(), static_cast<size_t>(flat.size()));
      continue;
    }
    absl::Status status = ToHost(ctx_, tensor, staged[i]);
    if (!status.ok()) return status;
    before[i] = staged[i];
    spans.emplace_back(staged[i]);
  }
  absl::Status done = work(spans);
  for (size_t i = 0; i < variables_.size(); ++i) {
    if (staged[i] == before[i]) continue;
    tf::Tensor& tensor = *variables_[i]->tensor();
    tf::Tensor cpu;
    absl::Status status = CpuTensor(ctx_, tensor, cpu);
    if (status.ok() && OnCpu(ctx_)) {
      cpu = tf::Tensor();  // Or the tensor would be shared, and copied.
      status = MakeOwn(ctx_, *variables_[i]);
      cpu = tensor;
    }
    if (status.ok()) status = AddChange(before[i], staged[i], cpu);
    if (status.ok() && !OnCpu(ctx_)) {
      status = MakeOwn(ctx_, *variables_[i]);
      if (status.ok()) status = ToDevice(ctx_, cpu, tensor);
    }
    if (!status.ok()) return status;
  }
  return done;
}

}  // namespace tensorlightning
