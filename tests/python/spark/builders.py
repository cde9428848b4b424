"""Models and data for tests with Spark; executors import this, too."""

from typing import Any

import numpy as np

FEATURES, CLASSES = 16, 4


def blobs(samples: int, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Points around four centres far from each other: learned in a few steps."""
    random = np.random.default_rng(seed)
    centres = 3 * np.eye(CLASSES, FEATURES)
    y = random.integers(0, CLASSES, samples)
    return (centres[y] + random.normal(size=(samples, FEATURES))).astype(np.float32), y


def classifier() -> Any:
    return _compiled(_dense(CLASSES, "softmax"), "sparse_categorical_crossentropy", ["accuracy"])


def falling_rate() -> Any:
    """Its learning rate is zero after 64 steps."""
    import keras

    model = _dense(CLASSES, "softmax")
    rate = keras.optimizers.schedules.PolynomialDecay(0.1, 64, end_learning_rate=0.0)
    model.compile(keras.optimizers.SGD(rate), "sparse_categorical_crossentropy")
    return model


def uncompiled() -> Any:
    return _dense(CLASSES)


def regression() -> Any:
    return _compiled(_dense(1), "mse")


def two_inputs() -> Any:
    import keras

    half = FEATURES // 2
    inputs = [keras.Input((half,), name="left"), keras.Input((2, half // 2), name="right")]
    flat = [inputs[0], keras.layers.Flatten()(inputs[1])]
    output = keras.layers.Dense(CLASSES, "softmax")(keras.layers.Concatenate()(flat))
    return _compiled(keras.Model(inputs, output), "sparse_categorical_crossentropy")


def autoencoder() -> Any:
    return _compiled(_dense(FEATURES), "mse")


def images() -> Any:
    """One number for each of 4 x 4 places."""
    import keras

    layers = [keras.Input((4, 4, 1)), keras.layers.Conv2D(2, 1)]
    return _compiled(keras.Sequential(layers), "mse")


def shapeless() -> Any:
    """Has no weights before it has seen data."""
    import keras

    layers = [keras.layers.Dense(8, "relu"), keras.layers.Dense(CLASSES, "softmax")]
    return _compiled(keras.Sequential(layers), "sparse_categorical_crossentropy")


def strange() -> Any:
    """Of classes that Keras does not know: no file can say how it is made."""
    import keras

    class Strange(keras.Model):
        def __init__(self, hidden: Any):
            super().__init__()
            self.hidden, self.out = hidden, keras.layers.Dense(CLASSES, "softmax")

        def call(self, x: Any) -> Any:
            return self.out(self.hidden(x))

    return _compiled(Strange(keras.layers.Dense(8)), "sparse_categorical_crossentropy")


def with_lambda() -> Any:
    import keras

    layers = [keras.Input((FEATURES,)), keras.layers.Lambda(lambda x: 2 * x)]
    layers.append(keras.layers.Dense(CLASSES, "softmax"))
    return _compiled(keras.Sequential(layers), "sparse_categorical_crossentropy")


def unlabelled() -> Any:
    """Learns that weights are small, which needs no label."""
    import keras

    kept = keras.layers.Dense(3, kernel_regularizer="l2")
    return _compiled(keras.Sequential([keras.Input((FEATURES,)), kept]), None)


def clothes() -> Any:
    """For Fashion-MNIST."""
    import keras

    keras.utils.set_random_seed(1)
    layers = [
        keras.Input((28, 28)),
        keras.layers.Rescaling(1 / 255),
        keras.layers.Flatten(),
        keras.layers.Dense(64, "relu"),
        keras.layers.Dense(10, "softmax"),
    ]
    return _compiled(
        keras.Sequential(layers), "sparse_categorical_crossentropy", ["accuracy"], rate=0.05
    )


def _dense(outputs: int, activation: str | None = None) -> Any:
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.Input((FEATURES,)), keras.layers.Dense(outputs, activation)]
    return keras.Sequential(layers)


def _compiled(model: Any, loss: Any, metrics: Any = None, rate: float = 0.1) -> Any:
    import keras

    model.compile(keras.optimizers.SGD(rate, momentum=0.9), loss, metrics=metrics)
    return model
