"""A training loop of one's own, without fit(): an exchanger, or a distributed optimizer.

python examples/custom_loop.py                             one worker
bin/tlrun -np 2 python examples/custom_loop.py             two that average their weights
bin/tlrun -np 2 python examples/custom_loop.py --gradients two that average their gradients
"""

import argparse
import contextlib

import keras
import tensorflow as tf
import tensorlightning as tl
from keras import layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=60_000, help="of all workers together")
    parser.add_argument("--gradients", action="store_true")
    arguments = parser.parse_args()

    (x, y), (test_x, test_y) = tl.datasets.fashion_mnist()
    data = tf.data.Dataset.from_tensor_slices((x[: arguments.samples], y[: arguments.samples]))
    # Whole batches only, as many for everybody: who averages gradients waits for the others.
    batches = tl.shard(data).shuffle(10_000).batch(32, drop_remainder=True)

    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            layers.Rescaling(1 / 255),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.03, momentum=0.9)
    if arguments.gradients:
        optimizer = tl.DistributedOptimizer(optimizer)
        exchanging = contextlib.nullcontext()
    else:
        exchanging = tl.exchanger(model.weights)

    with exchanging as exchange:

        @tf.function
        def step(images, labels):
            with tf.GradientTape() as tape:
                loss = loss_of(labels, model(images, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            if exchange is not None:
                exchange()
            return loss

        for epoch in range(arguments.epochs):
            for images, labels in batches:
                loss = step(images, labels)
            if tl.rank() == 0:
                print(f"epoch {epoch + 1}: loss {loss:.3f}")

    if tl.rank() == 0:
        guesses = tf.argmax(model.predict(test_x, verbose=0), axis=1)
        print(f"test accuracy {(guesses.numpy() == test_y).mean():.1%}")


if __name__ == "__main__":
    main()
