"""A CNN on Fashion-MNIST: plain Keras and one line.

python examples/keras_cnn.py                  one worker
bin/tlrun -np 2 python examples/keras_cnn.py  two that learn together
"""

import argparse

import keras
import tensorlightning as tl
from keras import layers


def build() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(96, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.compile(
        keras.optimizers.SGD(0.03, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=60_000, help="of all workers together")
    parser.add_argument("--save", help="a file for the trained model, such as cnn.keras")
    arguments = parser.parse_args()

    (x, y), test = tl.datasets.fashion_mnist()
    x, y = tl.shard(x[: arguments.samples, ..., None], y[: arguments.samples])
    model = build()
    model.fit(
        x,
        y,
        batch_size=32,
        epochs=arguments.epochs,
        verbose=2 if tl.rank() == 0 else 0,
        callbacks=[tl.Elastic(checkpoint=arguments.save)],  # The one line.
    )
    if tl.rank() == 0:
        _, accuracy = model.evaluate(test[0][..., None], test[1], verbose=0)
        print(
            f"test accuracy {accuracy:.1%}, {tl.statistics()['bytes_sent']:,} bytes sent by rank 0"
        )


if __name__ == "__main__":
    main()
