"""The ops alone: tf.load_op_library() and no Python package.

python examples/bare_ops.py                  one worker
bin/tlrun -np 2 python examples/bare_ops.py  two that learn together
"""

import argparse
import json
import os
from pathlib import Path

import tensorflow as tf

BUILT_BY_MAKE_TF = Path(__file__).parent.parent / "python/tensorlightning/libtensorlightning_tf.so"


def compress(ops) -> None:
    """The pure ops: tensors in, tensors out."""
    values = tf.random.stateless_normal([1000, 1000], seed=(1, 2))
    pruned, rest = ops.tl_prune(values, 0.01)
    code = ops.tl_sparse_encode(values, 0.01, bits=4)
    decoded = ops.tl_sparse_decode(code, tf.shape(values))
    print(f"{tf.math.count_nonzero(pruned)} of {tf.size(values)} entries are kept")
    print(f"4,000,000 bytes of floats become {len(code)} bytes of code")
    print(f"the code is off by {tf.norm(decoded - pruned) / tf.norm(pruned):.0%}")
    tf.debugging.assert_equal(pruned + rest, values)


def train(ops, steps: int) -> None:
    """Learns y = x @ truth; each worker sees numbers of its own."""
    truth = tf.random.stateless_normal([20, 1], seed=(3, 4))
    weights = tf.Variable(tf.zeros([20, 1]))
    variables = [weights.handle]
    worker = ops.tl_join("period=5 density=0.1 bits=8", variables, names=["weights"])
    while not ops.tl_joined(worker, variables):
        print("waiting for the others")

    @tf.function
    def step(number, rank):
        x = tf.random.stateless_normal([32, 20], seed=tf.stack([number, rank]))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - x @ truth) ** 2)
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        ops.tl_step(worker, 1, variables)  # Never waits.
        return loss

    rank = ops.tl_rank(worker)
    for number in range(steps):
        loss = step(tf.constant(number), rank)
        if number % 50 == 0:
            print(f"step {number}: loss {loss:.4f}")
    told = json.loads(ops.tl_statistics(worker).numpy())
    ops.tl_finish(worker, variables)  # Now the weights are everybody's.
    print(f"{told['exchanges']} exchanges moved {told['bytes_sent']} bytes up")
    print(f"distance to the truth: {tf.norm(weights - truth):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    library = os.environ.get("TL_TF_LIBRARY", BUILT_BY_MAKE_TF)
    parser.add_argument("--library", type=Path, default=library, help="what `make tf` has built")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    if not options.library.exists():
        parser.error(f"{options.library} is not there: run `make tf`")
    ops = tf.load_op_library(str(options.library.resolve()))
    compress(ops)
    train(ops, options.steps)


if __name__ == "__main__":
    main()
