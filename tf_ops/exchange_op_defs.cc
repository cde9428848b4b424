// The interfaces of the ops that exchange variables and gradients. All are
// stateful: TensorFlow neither drops nor repeats them, and orders them after
// what wrote the variables.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tensorlightning {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::NoOutputs;
using tensorflow::shape_inference::ScalarShape;

// Each gradient keeps its shape; the worker, a scalar, comes first.
absl::Status ShapesOfGradients(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i + 1));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TlJoin")
    .Input("options: string")
    .Input("resources: N * resource")
    .Output("worker: int64")
    .Attr("N: int >= 1")
    .Attr("names: list(string)")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"(
Begins to join a job with these variables, and returns at once.

options: Settings, name=value, separated by blanks, or by newlines if there is
  one: policy period beta density reply_density bits when change momentum
  aggregator embed job rank size attempt secret_file tls_ca patience. What is
  not given comes from variables TL_* of the environment, then from defaults.
  Without an aggregator: one worker alone, which embeds its own.
resources: Handles of the variables: float32, float16, bfloat16 or float64.
names: What they are called; the same, in the same order, in all workers.
worker: The number of the worker in this process.
)");

REGISTER_OP("TlJoined")
    .Input("worker: int64")
    .Input("resources: N * resource")
    .Output("joined: bool")
    .Attr("N: int >= 1")
    .Attr("timeout_s: float = 0.2")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"(
Waits up to timeout_s until the worker has joined. Once it has, the variables
hold everybody's weights: rank 0's, if nobody was there before.

joined: false: not yet, ask again.
)");

REGISTER_OP("TlStep")
    .Input("worker: int64")
    .Input("steps: int64")
    .Input("resources: N * resource")
    .Output("started: bool")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"(
After steps of training: adds what has come back from the last exchange to the
variables, and starts the next one if it is time. Never waits for the network.

steps: How many since the last call.
started: Whether an exchange has begun, in the background.
)");

REGISTER_OP("TlExchange")
    .Input("worker: int64")
    .Input("resources: N * resource")
    .Output("started: bool")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"(
As TlStep, whatever the schedule says; false while one is under way.
)");

REGISTER_OP("TlWait")
    .Input("worker: int64")
    .Output("idle: bool")
    .Attr("timeout_s: float = 0.2")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"(
Waits up to timeout_s until no exchange is under way. Whether none is.
)");

REGISTER_OP("TlPull")
    .Input("worker: int64")
    .Input("resources: N * resource")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"(
The centre, as it is now, into the variables. Waits, at most the worker's
patience.
)");

REGISTER_OP("TlFinish")
    .Input("worker: int64")
    .Input("resources: N * resource")
    .Attr("N: int >= 1")
    .Attr("own: bool = false")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"(
A last exchange, and the centre into the variables; then the worker leaves.
Waits, at most the worker's patience.

own: Keep this worker's own weights instead of the centre.
)");

REGISTER_OP("TlLeave")
    .Input("worker: int64")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"(
The worker leaves, not waiting for what is under way, and is forgotten. Without
effect on one that is not there any more.
)");

REGISTER_OP("TlAverageGradients")
    .Input("worker: int64")
    .Input("gradients: T")
    .Output("averages: T")
    .Attr("T: list({float, half, bfloat16, double}) >= 1")
    .SetIsStateful()
    .SetShapeFn(ShapesOfGradients)
    .Doc(R"(
Under policy=gradient the mean of all workers' pruned gradients; it waits for
them, at most the worker's patience. Under gradient-async what has come by
now, which may be zeros. What is pruned away stays in a residual.

gradients: One for each variable that the worker has joined with, in order.
)");

REGISTER_OP("TlRank")
    .Input("worker: int64")
    .Output("rank: int32")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc("The worker's rank among all, from 0; known once it has joined.");

REGISTER_OP("TlSize")
    .Input("worker: int64")
    .Output("size: int32")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc("How many workers live, as last heard.");

REGISTER_OP("TlStatistics")
    .Input("worker: int64")
    .Output("json: string")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
The worker's account as a JSON object: steps, exchanges, bytes, ... Of one that
has left, its last one.
)doc");

}  // namespace tensorlightning
