"""Small models and data for tests; the same in every process."""

import hashlib
from typing import Any

import keras
import numpy as np

FEATURES, CLASSES = 16, 4


def data(samples: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Which of four directions a point lies in: learned in seconds."""
    random = np.random.default_rng(5)
    x = random.normal(size=(samples, FEATURES)).astype(np.float32)
    return x, np.argmax(x @ random.normal(size=(FEATURES, CLASSES)), axis=1)


def dense(seed: int = 1) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            # More than 1,024 entries: these are pruned.
            keras.layers.Dense(160, activation="relu"),
            keras.layers.Dense(CLASSES),
        ]
    )


def normalised(seed: int = 1) -> keras.Model:
    """With weights that no gradient trains, and a generator of seeds."""
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(24)(inputs))
    hidden = keras.layers.Dropout(0.2)(keras.layers.ReLU()(hidden))
    return keras.Model(inputs, keras.layers.Dense(CLASSES)(hidden))


class Subclassed(keras.Model):
    """Has no variables before it has seen data."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(24, activation="relu")
        self.out = keras.layers.Dense(CLASSES)

    def call(self, x: Any) -> Any:
        return self.out(self.hidden(x))


def subclassed(seed: int = 1) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return Subclassed()


class Odd(keras.Model):
    """Sparse gradients, and a weight that has none."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = keras.layers.Embedding(8, 6)
        self.out = keras.layers.Dense(CLASSES)

    def build(self, shape: Any) -> None:
        self.unused = self.add_weight(shape=(3, 3), name="unused")
        self.embedding.build((None, FEATURES))
        self.out.build((None, FEATURES + 6))

    def call(self, x: Any) -> Any:
        tokens = keras.ops.cast(keras.ops.clip(3 * keras.ops.abs(x), 0, 7), "int32")
        known = keras.ops.mean(self.embedding(tokens), axis=1)
        return self.out(keras.ops.concatenate([known, x], axis=1))


def odd(seed: int = 1) -> keras.Model:
    keras.utils.set_random_seed(seed)
    model = Odd()
    model.build((None, FEATURES))
    return model


def recurrent(seed: int = 1) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Reshape((4, 4)),
            keras.layers.LSTM(8),
            keras.layers.Dense(CLASSES),
        ]
    )


def compiled(model: keras.Model, optimizer: Any = None, **settings: Any) -> keras.Model:
    model.compile(
        optimizer if optimizer is not None else keras.optimizers.SGD(0.1, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **({"metrics": ["accuracy"]} | settings),
    )
    return model


def accuracy(model: keras.Model) -> float:
    x, y = data()
    return float(np.mean(np.argmax(model.predict(x, verbose=0), axis=1) == y))


def digest(model: keras.Model) -> str:
    """The same for the same bits."""
    together = b"".join(np.asarray(weight).tobytes() for weight in model.weights)
    return hashlib.sha256(together).hexdigest()
