"""A model that trains slowly enough for something to happen meanwhile; executors import this."""

import time

import keras

SECONDS_A_STEP = 0.02


class Slow(keras.Sequential):
    def train_step(self, *args, **kwargs):
        time.sleep(SECONDS_A_STEP)
        return super().train_step(*args, **kwargs)


def clothes() -> keras.Model:
    """For Fashion-MNIST."""
    keras.utils.set_random_seed(1)
    model = Slow(
        [
            keras.Input((28, 28)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(10, "softmax"),
        ]
    )
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", run_eagerly=True)
    return model
