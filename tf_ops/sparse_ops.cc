// The pure ops: tensors in, tensors out. Interfaces, and kernels for the CPU.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string>

#include "kernels/finite.h"
#include "kernels/workspace.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf_ops/sparse_kernels.h"

namespace tensorlightning {
namespace {

namespace tf = tensorflow;
using tf::shape_inference::InferenceContext;
using tf::shape_inference::ShapeHandle;

absl::Status RequireScalar(InferenceContext* c, int index) {
  ShapeHandle unused;
  return c->WithRank(c->input(index), 0, &unused);
}

REGISTER_OP("TlPrune")
    .Input("values: float32")
    .Input("density: D")
    .Output("pruned: float32")
    .Output("rest: float32")
    .Attr("D: {float, double} = DT_DOUBLE")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(0));
      c->set_output(1, c->input(0));
      return RequireScalar(c, 1);
    })
    .Doc(R"doc(
Splits a tensor into its largest entries and the rest.

Of every 4,096 entries in a row, the ceil(density * 4096) of the largest
magnitude are kept; of equals, the first. pruned + rest is `values`.

values: any shape. NaN and Inf are an InvalidArgumentError that says where.
density: scalar, above 0 and at most 1.
pruned: the shape of `values`; zero where nothing was kept.
rest: the shape of `values`; zero where something was kept.
)doc");

REGISTER_OP("TlPruneGradient")
    .Input("gradient: float32")
    .Input("residual: float32")
    .Input("density: D")
    .Output("pruned: float32")
    .Output("rest: float32")
    .Attr("bits: int = 32")
    .Attr("D: {float, double} = DT_DOUBLE")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle same;
      TF_RETURN_IF_ERROR(c->Merge(c->input(0), c->input(1), &same));
      c->set_output(0, same);
      c->set_output(1, same);
      return RequireScalar(c, 2);
    })
    .Doc(R"doc(
Prunes a gradient and remembers what it did not send (error feedback).

The residual of the last step is added to the gradient; of the sum, the largest
entries of every 4,096 are quantised and leave. What stays, rounding errors too,
is the residual of the next step: nothing is lost, it is only late.
pruned + rest is gradient + residual.

gradient: any shape. NaN, Inf and magnitudes from 2^100 on are an
  InvalidArgumentError that says where.
residual: the shape of `gradient`; `rest` of the last step, zeros in the first.
density: scalar, above 0 and at most 1.
pruned: the shape of `gradient`; what would be sent, to the bit.
rest: the shape of `gradient`; the next step's `residual`.
bits: of a value that is sent: 32 (exact), 16 (bfloat16), 8, 4 or 2 (with one
  scale for 4,096 entries).
)doc");

REGISTER_OP("TlSparseEncode")
    .Input("values: float32")
    .Input("density: D")
    .Output("code: uint8")
    .Attr("bits: int = 32")
    .Attr("D: {float, double} = DT_DOUBLE")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      return RequireScalar(c, 1);
    })
    .Doc(R"doc(
The largest entries of a tensor as few bytes, for TlSparseDecode.

The bytes tell how many entries the tensor has and which of them they hold, but
not its shape. Zeros are never sent: with a density of 1 and 32 bits the code is
a lossless one of a sparse tensor.

values: any shape. NaN and Inf are an InvalidArgumentError that says where.
density: scalar, above 0 and at most 1: the share of every 4,096 entries to keep.
code: vector; the same bytes on every device.
bits: of a value: 32 (exact), 16 (bfloat16), 8, 4 or 2 (with one scale for 4,096
  entries).
)doc");

REGISTER_OP("TlSparseDecode")
    .Input("code: uint8")
    .Input("shape: S")
    .Output("values: float32")
    .Attr("S: {int32, int64} = DT_INT32")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle shape;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &shape));
      TF_RETURN_IF_ERROR(c->MakeShapeFromShapeTensor(1, &shape));
      c->set_output(0, shape);
      return absl::OkStatus();
    })
    .Doc(R"doc(
The tensor that TlSparseEncode has put into bytes.

code: vector. Bytes that are damaged, or of a tensor with another number of
  entries, are a DataLossError that says what is wrong with them.
shape: vector; the shape of the result.
values: zero where the code holds nothing.
)doc");

class Cpu {
 public:
  struct State {
    Workspace workspace;
    std::vector<std::byte> code;
  };

  Cpu(tf::OpKernelContext* /*ctx*/, State& state) : state_(state) {}

  static Status Copy(const float* from, float* to, size_t n) {
    std::copy_n(from, n, to);
    return Done{};
  }
  static Status Clear(float* to, size_t n) {
    std::fill_n(to, n, 0.0f);
    return Done{};
  }

  Result<std::span<const std::byte>> Compress(float* r, const float* g,
                                              size_t n,
                                              const Compression& compression) {
    Status status = compression.Check(n);
    if (status.ok() && g != nullptr) {
      status = CheckFinite({r, n}, "the residual", kUsableBits);
    }
    if (!status.ok()) return status.error();
    state_.code.resize(compression.MaxBytes(n));
    const std::span<const float> added(g, g == nullptr ? 0 : n);
    const Result<Emitted> emitted = tensorlightning::Compress(
        {r, n}, added, compression, state_.workspace, state_.code);
    if (!emitted.ok()) return emitted.error();
    return std::span<const std::byte>(state_.code.data(), emitted->bytes);
  }

  static Status DecodeAdd(const Message& message, float* y) {
    tensorlightning::DecodeAdd(message, {y, message.entries()}, 1.0f);
    return Done{};
  }

 private:
  State& state_;
};

REGISTER_KERNEL_BUILDER(Name("TlPrune").Device(tf::DEVICE_CPU), PruneOp<Cpu>);
REGISTER_KERNEL_BUILDER(Name("TlPruneGradient").Device(tf::DEVICE_CPU),
                        PruneGradientOp<Cpu>);
REGISTER_KERNEL_BUILDER(Name("TlSparseEncode").Device(tf::DEVICE_CPU),
                        SparseEncodeOp<Cpu>);
REGISTER_KERNEL_BUILDER(Name("TlSparseDecode").Device(tf::DEVICE_CPU),
                        SparseDecodeOp<Cpu>);

// 0.1f is a little more than 0.1, and would keep 2 of 10 entries: what counts
// is the number that a person wrote.
double AsWritten(float value) {
  std::array<char, 32> text{};
  const std::to_chars_result end =
      std::to_chars(text.data(), text.data() + text.size(), value);
  double written = value;
  std::from_chars(text.data(), end.ptr, written);
  return written;
}

}  // namespace

absl::Status ReadBits(tf::OpKernelConstruction* ctx, ValueCode* code) {
  int bits = 0;
  absl::Status status = ctx->GetAttr("bits", &bits);
  if (!status.ok()) return status;
  for (int c = 0; c < kValueCodes; ++c) {
    *code = static_cast<ValueCode>(c);
    if (bits == static_cast<int>(ValueBits(*code))) return status;
  }
  return absl::InvalidArgumentError("bits must be 32, 16, 8, 4 or 2, not " +
                                    std::to_string(bits));
}

absl::Status ReadDensity(tf::OpKernelContext* ctx, int index,
                         SelectionRule* rule) {
  const tf::Tensor& density = ctx->input(index);
  if (density.NumElements() != 1) {
    return absl::InvalidArgumentError("a density is one number, not a " +
                                      density.shape().DebugString());
  }
  *rule = SelectionRule::ChunkTopK(density.dtype() == tf::DT_FLOAT
                                       ? AsWritten(density.flat<float>()(0))
                                       : density.flat<double>()(0));
  return ToTensorFlow(rule->Check());
}

}  // namespace tensorlightning
