"""The models that the benchmark of training trains, and their data.

Each is small enough for one core, and built from Keras' layers alone: from those of Keras 3 for us,
and of tf_keras for TensorFlow's own strategies, which do not run with Keras 3.
"""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import machine
import numpy as np

sys.path.insert(0, str(machine.ROOT / "python"))
from tensorlightning import datasets

SEQUENCE = 16  # characters that a recurrent model sees at once
TEST_SEQUENCES = 1024
TEXT_TESTED = 0.05  # of the text, at its end


@dataclass(frozen=True)
class Data:
    """Records of bytes, as they would lie on a worker's disk; x and y are made of a batch of them.

    An image is 784 bytes and its label; a piece of text is its characters' numbers.
    """

    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class Task:
    """A model, what it learns, and how."""

    name: str
    build: Callable[[ModuleType], object]  # from keras or tf_keras
    data: Callable[[], Data]
    metric: str  # accuracy (of which more is better), bpc: bits per character, or none
    optimizer: str
    batch: int
    rates: tuple[float, ...]  # the grid that learning rates are chosen from

    @property
    def more_is_better(self) -> bool:
        return self.metric == "accuracy"

    def make_optimizer(self, keras: ModuleType):
        if self.optimizer == "adam":
            return keras.optimizers.Adam(self.rates[0])
        return keras.optimizers.SGD(self.rates[0], momentum=0.9)


def _mlp(keras: ModuleType):
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((784,)),
            layers.Dense(256, "relu"),
            layers.Dense(128, "relu"),
            layers.Dense(10),
        ]
    )


def _cnn(keras: ModuleType):
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((784,)),
            layers.Reshape((28, 28, 1)),
            layers.Conv2D(16, 5, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(128, "relu"),
            layers.Dense(10),
        ]
    )


def _recurrent(layer: str, units: int, keras: ModuleType):
    characters = len(alphabet())
    return keras.Sequential(
        [
            keras.Input((SEQUENCE, characters)),
            getattr(keras.layers, layer)(units, return_sequences=True),
            keras.layers.Dense(characters),
        ]
    )


def _large(keras: ModuleType):
    layers = keras.layers
    hidden = [layers.Dense(2048, "relu") for _ in range(3)]
    return keras.Sequential([keras.Input((784,)), *hidden, layers.Dense(10)])


@functools.cache
def fashion() -> Data:
    (images, labels), (test_images, test_labels) = datasets.fashion_mnist()

    def records(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.hstack([images.reshape(len(images), -1), labels[:, None]])

    return Data(records(images, labels), records(test_images, test_labels))


@functools.cache
def synthetic() -> Data:
    """As large as images are, and nothing to learn: for speed."""
    random = np.random.default_rng(1)
    records = random.integers(0, 256, (2048, 785), dtype=np.uint8)
    records[:, -1] %= 10
    return Data(records, records[:512])


@functools.cache
def text_numbers() -> np.ndarray:
    numbers = {character: number for number, character in enumerate(alphabet())}
    text = datasets.shakespeare()
    return np.fromiter((numbers[character] for character in text), np.uint8, len(text))


@functools.cache
def alphabet() -> list[str]:
    return sorted(set(datasets.shakespeare()))


@functools.cache
def text() -> Data:
    """Pieces of one character more than a sequence: each predicts the next."""
    numbers = text_numbers()
    pieces = len(numbers) // (SEQUENCE + 1)
    records = numbers[: pieces * (SEQUENCE + 1)].reshape(pieces, SEQUENCE + 1)
    first_test = int(pieces * (1 - TEXT_TESTED))
    spread = np.linspace(first_test, pieces - 1, TEST_SEQUENCES).astype(int)
    return Data(records[:first_test], records[spread])


_SGD_RATES = (0.02, 0.04, 0.08, 0.16)
_ADAM_RATES = (0.008, 0.016, 0.032, 0.064)
_SIMPLE_RNN = functools.partial(_recurrent, "SimpleRNN", 256)
_LSTM = functools.partial(_recurrent, "LSTM", 128)
_ALL = [
    Task("mlp", _mlp, fashion, "accuracy", "sgd", 32, _SGD_RATES),
    Task("cnn", _cnn, fashion, "accuracy", "sgd", 32, _SGD_RATES),
    Task("simple_rnn", _SIMPLE_RNN, text, "bpc", "adam", 16, _ADAM_RATES),
    Task("lstm", _LSTM, text, "bpc", "adam", 16, _ADAM_RATES),
    Task("large_mlp", _large, synthetic, "none", "sgd", 128, (0.01,)),
]
TASKS = {task.name: task for task in _ALL}


def inputs_and_targets(task: Task, records):
    """In TensorFlow, from a batch of records."""
    import tensorflow as tf

    if task.metric == "bpc":
        numbers = tf.cast(records, tf.int32)
        return tf.one_hot(numbers[:, :-1], len(alphabet())), numbers[:, 1:]
    return tf.cast(records[:, :-1], tf.float32) / 255, tf.cast(records[:, -1], tf.int32)


class Batches:
    """One worker's share of the data, shuffled anew in every epoch."""

    def __init__(self, task: Task, rank: int, size: int, seed: int):
        self._records = task.data().train[rank::size]
        self._batch = task.batch
        self._random = np.random.default_rng((seed, rank))
        self._order = np.empty(0, int)

    def __next__(self) -> np.ndarray:
        if len(self._order) < self._batch:
            self._order = self._random.permutation(len(self._records))
        taken, self._order = self._order[: self._batch], self._order[self._batch :]
        return self._records[taken]
