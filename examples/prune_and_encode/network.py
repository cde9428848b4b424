"""A small network in numpy and Fashion-MNIST to train it on: where the demo's gradient is from."""

import gzip
import itertools
from pathlib import Path

import numpy as np

# Where the Debian package dataset-fashion-mnist puts it.
DATA = Path("/usr/share/datasets/fashion-mnist")
CLASSES = 10


class NoDataError(Exception):
    """The data set is not there; says how to get it."""


def load(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The 60,000 training images as rows of 784 floats from 0 to 1, and their labels."""
    try:
        images = _read_idx(folder / "train-images-idx3-ubyte.gz", header_bytes=16)
        labels = _read_idx(folder / "train-labels-idx1-ubyte.gz", header_bytes=8)
    except FileNotFoundError as error:
        raise NoDataError(
            f"{error.filename} is not there: run make setup, "
            "which installs the Debian package dataset-fashion-mnist"
        ) from error
    return images.reshape(len(labels), -1).astype(np.float32) / 255, labels


def _read_idx(path: Path, header_bytes: int) -> np.ndarray:
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header_bytes)


class Network:
    """Fully connected layers with ReLU between them and softmax at the end."""

    def __init__(self, widths: list[int], seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.weights = [
            random.standard_normal((a, b), dtype=np.float32) * np.float32(np.sqrt(2 / a))
            for a, b in itertools.pairwise(widths)
        ]
        self.biases = [np.zeros(width, np.float32) for width in widths[1:]]

    @property
    def parameters(self) -> list[np.ndarray]:
        return [*self.weights, *self.biases]

    def gradient(self, images: np.ndarray, labels: np.ndarray) -> tuple[float, list[np.ndarray]]:
        """The mean cross-entropy of a batch, and its gradient in the order of `parameters`."""
        inputs = [images]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            inputs.append(np.maximum(inputs[-1] @ weight + bias, 0))
        logits = inputs[-1] @ self.weights[-1] + self.biases[-1]
        logits -= logits.max(axis=1, keepdims=True)
        chances = np.exp(logits)
        chances /= chances.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = float(-np.log(chances[rows, labels] + 1e-12).mean())

        delta = chances
        delta[rows, labels] -= 1
        delta /= len(labels)
        weights, biases = [], []
        for layer in reversed(range(len(self.weights))):
            weights.insert(0, inputs[layer].T @ delta)
            biases.insert(0, delta.sum(axis=0))
            if layer > 0:
                delta = (delta @ self.weights[layer].T) * (inputs[layer] > 0)
        return loss, [*weights, *biases]

    def step(self, gradient: list[np.ndarray], rate: float) -> None:
        for parameter, slope in zip(self.parameters, gradient, strict=True):
            parameter -= np.float32(rate) * slope
