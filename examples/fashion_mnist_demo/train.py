"""An ordinary Keras program that trains a CNN on Fashion-MNIST. One line makes it distributed.

python train.py                                   one worker
tlrun -np 2 python train.py                       two, each with half of the data
tlrun -np 2 --policy dense python train.py        two that send everything
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
import tensorlightning as tl

BATCH = 32


def build() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 5, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


class Curve(keras.callbacks.Callback):
    """Accuracy on the test images after every so many steps; time spent on that does not count."""

    def __init__(self, test, every: int):
        super().__init__()
        self.points: list[dict] = []
        self.seconds = 0.0  # from the end of the first step to that of the last
        self._test, self._every, self._steps = test, every, 0
        self._since = 0.0

    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        self.seconds += now - self._since if self._steps else 0.0
        self._steps += 1
        if tl.rank() == 0 and self._steps % self._every == 0:
            self.look()
        self._since = time.monotonic()

    def look(self) -> float:
        logits = self.model.predict_on_batch(self._test[0])
        accuracy = float((logits.argmax(axis=1) == self._test[1]).mean())
        self.points.append({"seconds": self.seconds, "accuracy": accuracy})
        return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=float, default=4, help="over all workers' data (4)")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="where to leave a report")
    options = parser.parse_args()
    # A worker of the demo is a machine with one core.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(1 + tl.rank())

    (x, y), (test_x, test_y) = tl.datasets.fashion_mnist()
    x, test_x = x[..., None].astype("float32") / 255, test_x[..., None].astype("float32") / 255
    steps = int(options.epochs * len(x) / tl.size() / BATCH)
    data = tf.data.Dataset.from_tensor_slices((tl.shard(x), tl.shard(y)))
    data = data.shuffle(10_000, seed=tl.rank()).repeat().batch(BATCH).take(steps).prefetch(1)

    model = build()
    rate = keras.optimizers.schedules.PolynomialDecay(0.04, steps, end_learning_rate=0.0)
    model.compile(
        keras.optimizers.SGD(rate, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    curve = Curve((test_x, test_y), max(1, steps // 12))
    model.fit(data, shuffle=False, verbose=0, callbacks=[curve, tl.Elastic()])  # The one line.

    seen = tl.statistics()
    report = {
        "seconds": curve.seconds,
        "accuracy": curve.look(),  # of what all have learned together
        "curve": curve.points,
        "steps": steps,
        "parameters": model.count_params(),
        "bytes": seen.get("bytes_sent", 0) + seen.get("bytes_received", 0),
    }
    print(
        f"accuracy {report['accuracy']:.2%} after {steps} steps in {curve.seconds:.0f} s",
        flush=True,
    )
    if options.results:
        (options.results / f"rank-{tl.rank()}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
