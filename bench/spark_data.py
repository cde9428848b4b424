"""What every side of the benchmark of Spark trains: the same model, from the same files.

Executors import this too.
"""

import sys
from pathlib import Path

import machine
import numpy as np

sys.path.insert(0, str(machine.ROOT / "python"))
from tensorlightning import datasets

PIXELS = 784
WORKERS = 2


def build_model(seed: int, rate: float, steps: int | None = None):
    """The CNN of the benchmark of training. Within so many steps, the rate falls to zero."""
    import keras

    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((PIXELS,), dtype="uint8"),
            layers.Rescaling(1 / 255),
            layers.Reshape((28, 28, 1)),
            layers.Conv2D(16, 5, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    schedules = keras.optimizers.schedules
    falling = schedules.PolynomialDecay(rate, steps, end_learning_rate=0.0) if steps else rate
    model.compile(
        keras.optimizers.Adam(falling), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def training(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """So many images, as rows of bytes, and their labels, in an order that is always the same."""
    images, labels = datasets.fashion_mnist()[0]
    chosen = np.random.default_rng(1).permutation(len(images))[:rows]
    return images[chosen].reshape(-1, PIXELS), labels[chosen].astype(np.int32)


def test(rows: int) -> tuple[np.ndarray, np.ndarray]:
    images, labels = datasets.fashion_mnist()[1]
    return images[:rows].reshape(-1, PIXELS), labels[:rows].astype(np.int32)


def accuracy(model, rows: int) -> float:
    """In per cent, of so many images that nobody has trained on."""
    images, labels = test(rows)
    said = model.predict(images, batch_size=500, verbose=0)
    return 100 * float(np.mean(np.argmax(said, axis=1) == labels))


def write_parquet(folder: Path, rows: int) -> None:
    """One file for each worker: each is a partition, and nothing has to be moved."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    images, labels = training(rows)
    for part in range(WORKERS):
        table = pa.table(
            {
                "image": pa.array([row.tobytes() for row in images[part::WORKERS]], pa.binary()),
                "label": pa.array(labels[part::WORKERS]),
            }
        )
        pq.write_table(table, folder / f"part-{part}.parquet")
