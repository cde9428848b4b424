"""Batches of a partition's rows, epoch after epoch, from an iterator that can be read only once.

    with Feed(from_arrow(batches, columns), batch_size=64, epochs=3) as feed:
        for number in range(3):
            for images, labels in feed.epoch(number):

The first epoch trains on rows while they come in. Meanwhile they are spilled to the local disk,
from which later epochs read them (few rows just stay in memory): Spark moves no row twice.

    Spark --> a thread checks, shuffles, spills --> a few pieces --> epoch 0
                                           |
    disk <---------------------------------+
      |
      +-----> a thread reads, shuffles -----------> a few pieces --> epochs 1, 2, ...

The order depends on the seed, the epoch and the pieces in which rows come, and on nothing else: a
retried task that gets the same rows can leave out those that it has had.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tensorlightning.spark import spill
from tensorlightning.spark.ahead import Ahead

Arrays = tuple[np.ndarray, ...]


class Feed:
    """One partition's rows in batches. For one thread, which calls close() when it is done.

    Batches may be views of what Spark has sent: they are not to be written to.
    """

    def __init__(
        self,
        arrays: Iterator[Arrays],
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        folder: str | None = None,
        ahead: int = 4,
        epochs: int | None = None,
    ):
        """Begins to read. With `epochs=1` nothing is spilled."""
        if batch_size < 1 or ahead < 1:
            raise ValueError(f"batch_size={batch_size} and ahead={ahead}: 1 is the least")
        self.rows = 0  # That have come so far.
        self.complete = False  # All have come.
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._seed = seed % (1 << 64)
        self._epochs = epochs
        self._ahead = ahead
        self._spill = None if epochs == 1 else spill.Spill(folder)
        self._began = 0  # So many epochs.
        self._first: Arrays | None = None
        self._later: Ahead[Arrays] | None = None
        self._stream = Ahead(self._arriving(arrays), ahead, "tl-feed")

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    @property
    def waiting(self) -> bool:
        """Somebody wants rows, and they have not come yet: it is Spark that is slow."""
        return self._stream.waiting

    def first(self) -> Arrays | None:
        """The first rows, a batch at most, which stay to be read; None: the partition is empty.

        Waits for them.
        """
        if self._first is None:
            self._stream.peek()
        return self._first

    def epoch(self, number: int, skip: int = 0) -> Iterator[Arrays]:
        """The batches of an epoch, counted from 0, without its first `skip` rows.

        All but the last have `batch_size` rows. Only one epoch is read at a time: an earlier one
        that is not at its end can't go on.
        """
        if number < 0 or (self._epochs is not None and number >= self._epochs):
            raise ValueError(f"epoch {number} of a feed for {self._epochs} epochs")
        self._began += 1
        if number == 0 and self._began == 1:
            return self._cut(self._began, self._stream, skip)
        if self._spill is None:
            raise ValueError("a feed for a single epoch keeps no rows for another")
        return self._cut(self._began, self._spilled(number), skip)

    def count(self) -> int:
        """Reads all rows, for their number alone."""
        self._drain()
        return self.rows

    def gather(self) -> int:
        """Waits until all rows are on the disk, from where epochs then come; how many there are."""
        if self._spill is None:
            raise ValueError("a feed for a single epoch keeps no rows")
        self._drain()
        self._began += 1  # The stream is nobody's any more.
        return self.rows

    def close(self) -> None:
        """Stops reading, and frees what is on the disk."""
        self._stream.close()
        if self._later is not None:
            self._later.close()
        if self._spill is not None:
            self._spill.close()

    def _random(self, *which: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *which])

    def _arriving(self, arrays: Iterable[Arrays]) -> Iterator[Arrays]:
        """Pieces in the order of epoch 0, which is the order of the file, too."""
        like: list[Any] = []
        for number, come in enumerate(piece for piece in arrays if len(piece[0])):
            _check_alike(come, like)
            if self._shuffle:
                pieces = spill.shuffled(come, self._random(0, number))
            else:
                pieces = spill.sliced(come)
            for piece in pieces:
                if self._first is None:
                    self._first = tuple(array[: self._batch_size].copy() for array in piece)
                if self._spill is not None:
                    self._spill.append(piece)
                self.rows += len(piece[0])
                yield piece
        self.complete = True

    def _drain(self) -> None:
        for _ in self._stream:  # To its end: the thread spills, and the rows are not wanted now.
            pass

    def _spilled(self, number: int) -> Iterator[Arrays]:
        self._drain()
        assert self._spill is not None
        if self._shuffle and number > 0:
            pieces = self._spill.shuffled_pieces(self._random(number))
        else:
            pieces = self._spill.pieces()
        if self._later is not None:
            self._later.close()
        self._later = Ahead(pieces, self._ahead, "tl-feed-again")
        yield from self._later

    def _cut(self, turn: int, pieces: Iterator[Arrays], skip: int) -> Iterator[Arrays]:
        """Batches out of pieces: views, but for those that lie across pieces."""
        size = missing = self._batch_size
        held: list[Arrays] = []
        for piece in pieces:
            rows = len(piece[0])
            begin = min(skip, rows)
            skip -= begin
            while begin < rows:
                if turn != self._began:
                    raise RuntimeError("this epoch was given up when another one began")
                end = min(begin + missing, rows)
                held.append(tuple(array[begin:end] for array in piece))
                missing -= end - begin
                begin = end
                if not missing:
                    yield _joined(held)
                    held, missing = [], size
        if turn != self._began:
            raise RuntimeError("this epoch was given up when another one began")
        if held:
            yield _joined(held)


def _joined(parts: list[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def _check_alike(arrays: Arrays, like: list[Any]) -> None:
    """Rows of all pieces have the shapes and types of the first: the file does not know them."""
    if len({len(array) for array in arrays}) > 1:
        raise ValueError(f"columns of different lengths: {[len(array) for array in arrays]}")
    kinds = [(array.dtype, array.shape[1:]) for array in arrays]
    like += [] if like else kinds
    if kinds != like:
        raise ValueError(f"rows of {kinds} after rows of {like}")
