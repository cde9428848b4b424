// The kernels of the pure ops (sparse_ops.cc says what each does), written once
// for all devices. A Device is made for one call and brings
//
//   Device::State                    what is kept from call to call
//   Copy(from, to, n), Clear(to, n)  n floats in its memory
//   Compress(r, g, n, ...)           as in kernels/exchange.h; g may be null;
//                                    the code is in host memory, in the state
//   DecodeAdd(message, y, ...)       y += what the message keeps
//
// Codes, densities and shapes are in host memory on every device.
#ifndef TENSORLIGHTNING_TF_OPS_SPARSE_KERNELS_H_
#define TENSORLIGHTNING_TF_OPS_SPARSE_KERNELS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "kernels/decode.h"
#include "kernels/exchange.h"
#include "kernels/result.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor_util.h"
#include "tf_ops/status.h"

namespace tensorlightning {

inline absl::Status ToTensorFlow(const Status& status) {
  return status.ok() ? absl::OkStatus() : ToTensorFlow(status.error());
}

// Reads the attribute `bits`; an error names those that there are.
absl::Status ReadBits(tensorflow::OpKernelConstruction* ctx, ValueCode* code);

// Reads the scalar input `index`; an error unless it is above 0 and at most 1.
absl::Status ReadDensity(tensorflow::OpKernelContext* ctx, int index,
                         SelectionRule* rule);

// The state of calls that may run at once: one each, used again afterwards.
template <typename State>
class Spares {
 public:
  std::unique_ptr<State> Take() {
    const std::scoped_lock lock(mutex_);
    if (spares_.empty()) return std::make_unique<State>();
    std::unique_ptr<State> state = std::move(spares_.back());
    spares_.pop_back();
    return state;
  }
  void Return(std::unique_ptr<State> state) {
    const std::scoped_lock lock(mutex_);
    spares_.push_back(std::move(state));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<State>> spares_;
};

// What the ops share: a device and its state for each call.
template <typename Device>
class SparseOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* ctx) final {
    std::unique_ptr<typename Device::State> state = spares_.Take();
    Device device(ctx, *state);
    OP_REQUIRES_OK(ctx, Run(ctx, device));
    spares_.Return(std::move(state));
  }

 protected:
  virtual absl::Status Run(tensorflow::OpKernelContext* ctx,
                           Device& device) = 0;

  // Adds `gradient`, which may be null, to input `index`; what is sent of the
  // sum becomes output 0, what is left output 1.
  static absl::Status Split(tensorflow::OpKernelContext* ctx, int index,
                            const float* gradient,
                            const Compression& compression, Device& device) {
    const tensorflow::Tensor& input = ctx->input(index);
    const auto n = static_cast<size_t>(input.NumElements());
    tensorflow::Tensor* sent = nullptr;
    tensorflow::Tensor* left = nullptr;
    absl::Status status = ctx->allocate_output(0, input.shape(), &sent);
    if (!status.ok()) return status;
    // In place, if nobody else wants to read the input.
    status =
        ctx->forward_input_or_allocate_output({index}, 1, input.shape(), &left);
    if (!status.ok()) return status;
    float* const rest = left->flat<float>().data();
    const float* const before = input.flat<float>().data();
    if (rest != before) {
      status = ToTensorFlow(device.Copy(before, rest, n));
      if (!status.ok()) return status;
    }
    const Result<std::span<const std::byte>> code =
        device.Compress(rest, gradient, n, compression);
    if (!code.ok()) return ToTensorFlow(code.error());
    // Through the code, so that it is to the bit what a receiver would get.
    const Result<Message> message = Message::Parse(*code, n);
    if (!message.ok()) return ToTensorFlow(message.error());
    float* const out = sent->flat<float>().data();
    status = ToTensorFlow(device.Clear(out, n));
    if (!status.ok()) return status;
    return ToTensorFlow(device.DecodeAdd(*message, out));
  }

 private:
  Spares<typename Device::State> spares_;
};

template <typename Device>
class PruneOp final : public SparseOp<Device> {
 public:
  using SparseOp<Device>::SparseOp;

 protected:
  absl::Status Run(tensorflow::OpKernelContext* ctx, Device& device) override {
    Compression compression{{}, ValueCode::kFloat32};
    absl::Status status = ReadDensity(ctx, 1, &compression.rule);
    if (!status.ok()) return status;
    return this->Split(ctx, 0, nullptr, compression, device);
  }
};

template <typename Device>
class PruneGradientOp final : public SparseOp<Device> {
 public:
  explicit PruneGradientOp(tensorflow::OpKernelConstruction* ctx)
      : SparseOp<Device>(ctx) {
    OP_REQUIRES_OK(ctx, ReadBits(ctx, &code_));
  }

 protected:
  absl::Status Run(tensorflow::OpKernelContext* ctx, Device& device) override {
    const tensorflow::Tensor& gradient = ctx->input(0);
    const tensorflow::Tensor& residual = ctx->input(1);
    if (gradient.shape() != residual.shape()) {
      return absl::InvalidArgumentError(
          "gradient and residual differ in shape: " +
          gradient.shape().DebugString() + " and " +
          residual.shape().DebugString());
    }
    Compression compression{{}, code_};
    absl::Status status = ReadDensity(ctx, 2, &compression.rule);
    if (!status.ok()) return status;
    return this->Split(ctx, 1, gradient.flat<float>().data(), compression,
                       device);
  }

 private:
  ValueCode code_ = ValueCode::kFloat32;
};

template <typename Device>
class SparseEncodeOp final : public SparseOp<Device> {
 public:
  explicit SparseEncodeOp(tensorflow::OpKernelConstruction* ctx)
      : SparseOp<Device>(ctx) {
    OP_REQUIRES_OK(ctx, ReadBits(ctx, &code_));
  }

 protected:
  absl::Status Run(tensorflow::OpKernelContext* ctx, Device& device) override {
    const tensorflow::Tensor& values = ctx->input(0);
    const auto n = static_cast<size_t>(values.NumElements());
    Compression compression{{}, code_};
    absl::Status status = ReadDensity(ctx, 1, &compression.rule);
    if (!status.ok()) return status;
    // Compress() leaves in it what it has not sent: not in the input.
    tensorflow::Tensor scratch;
    status = ctx->allocate_temp(tensorflow::DT_FLOAT, values.shape(), &scratch);
    if (!status.ok()) return status;
    float* const rest = scratch.flat<float>().data();
    status = ToTensorFlow(device.Copy(values.flat<float>().data(), rest, n));
    if (!status.ok()) return status;
    const Result<std::span<const std::byte>> code =
        device.Compress(rest, nullptr, n, compression);
    if (!code.ok()) return ToTensorFlow(code.error());
    tensorflow::Tensor* out = nullptr;
    status = ctx->allocate_output(
        0, tensorflow::TensorShape({static_cast<int64_t>(code->size())}), &out);
    if (!status.ok()) return status;
    std::copy_n(reinterpret_cast<const uint8_t*>(code->data()), code->size(),
                out->flat<uint8_t>().data());
    return status;
  }

 private:
  ValueCode code_ = ValueCode::kFloat32;
};

template <typename Device>
class SparseDecodeOp final : public SparseOp<Device> {
 public:
  using SparseOp<Device>::SparseOp;

 protected:
  absl::Status Run(tensorflow::OpKernelContext* ctx, Device& device) override {
    const tensorflow::Tensor& code = ctx->input(0);
    tensorflow::TensorShape shape;
    absl::Status status = tensorflow::tensor::MakeShape(ctx->input(1), &shape);
    if (!status.ok()) return status;
    const auto bytes = std::as_bytes(std::span(
        code.flat<uint8_t>().data(), static_cast<size_t>(code.NumElements())));
    const auto n = static_cast<size_t>(shape.num_elements());
    // Before any memory is asked for: the shape may be as wrong as the code.
    const Result<Message> message = Message::Parse(bytes, n);
    if (!message.ok()) return ToTensorFlow(message.error());
    tensorflow::Tensor* out = nullptr;
    status = ctx->allocate_output(0, shape, &out);
    if (!status.ok()) return status;
    float* const values = out->flat<float>().data();
    status = ToTensorFlow(device.Clear(values, n));
    if (!status.ok()) return status;
    return ToTensorFlow(device.DecodeAdd(*message, values));
  }
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_TF_OPS_SPARSE_KERNELS_H_
