"""The rows of a partition, kept for later epochs: written once, in the order in which they come.

Few rows stay in memory; more are written to the local disk, all of them. There is one file for
each column, without a name: nothing is left of it when the process is gone, however that ends.
Reading is done in large pieces, so that neither a slow disk nor a partition that is larger than the
memory is a problem: the memory that is needed does not depend on the number of rows.
"""

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import numpy as np

Arrays = tuple[np.ndarray, ...]

# Of rows that are handed on together: many batches.
PIECE_BYTES = 4 << 20
# Of rows that are in memory together: to be kept there, or to be shuffled.
WINDOW_BYTES = 64 << 20
# Of rows that are neighbours in the file and are read at once: enough for any disk to be fast.
_BLOCK_BYTES = 256 << 10


def default_folder() -> str:
    """Where Spark lets its tasks write, or else where everybody does."""
    for variable in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
        for folder in os.environ.get(variable, "").split(","):
            if folder and Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK):
                return folder
    return tempfile.gettempdir()


class Spill:
    """Keeps rows. Thread-safe: close() waits for the disk at most."""

    def __init__(self, folder: str | None = None):
        self.rows = 0
        self._folder = folder or default_folder()
        self._held: list[Arrays] = []  # All rows, as long as they are few.
        self._files: list[FileIO] = []
        self._open = contextlib.ExitStack()
        self._like: Arrays = ()  # One row, for shapes and types.
        self._lock = threading.Lock()
        self._closed = False

    def append(self, arrays: Arrays) -> None:
        """Rows after those that are there; all have the same shapes and types.

        The arrays must not change afterwards.
        """
        with self._while_open():
            if not self._like:
                self._like = tuple(array[:1].copy() for array in arrays)
            rows = self.rows + len(arrays[0])
            if rows * _row_bytes(self._like) <= WINDOW_BYTES:
                self._held.append(arrays)
            else:
                self._write(arrays)
            self.rows = rows

    def pieces(self) -> Iterator[Arrays]:
        """All rows in the order in which they came."""
        if self._held or not self.rows:
            yield from list(self._held)
            return
        step = _rows_in(PIECE_BYTES, self._like)
        for begin in range(0, self.rows, step):
            piece = self._space(min(step, self.rows - begin))
            self._read(begin, piece)
            yield piece

    def shuffled_pieces(self, random: np.random.Generator) -> Iterator[Arrays]:
        """All rows, shuffled: as many as are in memory at once are picked in blocks from
        everywhere, and shuffled among themselves. Any order of rows in memory is possible.
        """
        if not self.rows:
            return
        if self._held:
            yield from shuffled(self._joined(), random)
            return
        block = _rows_in(_BLOCK_BYTES, self._like)
        begins = block * random.permutation(-(-self.rows // block))
        at_once = max(1, _rows_in(WINDOW_BYTES, self._like) // block)
        space = self._space(min(self.rows, at_once * block))
        for first in range(0, len(begins), at_once):
            window = self._read_blocks(np.sort(begins[first : first + at_once]), block, space)
            yield from shuffled(window, random)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._held.clear()
            self._open.close()

    @contextlib.contextmanager
    def _while_open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise RuntimeError("closed: there are no more rows")
            yield

    def _write(self, arrays: Arrays) -> None:
        """To the files; first what was held."""
        try:
            if not self._files:
                for _ in arrays:
                    file = self._open.enter_context(_nameless(self._folder))
                    self._files.append(file)
            for piece in (*self._held, arrays):
                for file, array in zip(self._files, piece, strict=True):
                    _write(file, array)
        except OSError as error:
            raise self._explained(error) from error
        self._held.clear()

    def _explained(self, error: OSError) -> OSError:
        written = self.rows * _row_bytes(self._like) >> 20
        return OSError(
            error.errno,
            f"the rows of this partition can't be spilled to {self._folder}: {error.strerror}, "
            f"after {written} MiB. Later epochs read them from there: it takes spark.local.dir (or "
            "SPARK_LOCAL_DIRS) with more room, or more hosts",
        )

    def _joined(self) -> Arrays:
        with self._while_open():
            if len(self._held) > 1:
                columns = zip(*self._held, strict=True)
                self._held = [tuple(np.concatenate(column) for column in columns)]
            return self._held[0]

    def _space(self, rows: int) -> Arrays:
        return tuple(np.empty((rows, *one.shape[1:]), one.dtype) for one in self._like)

    def _read_blocks(self, begins: np.ndarray, block: int, space: Arrays) -> Arrays:
        """Into the space, one after the other; returns what they take of it."""
        rows = 0
        for begin in begins.tolist():
            count = min(block, self.rows - begin)
            self._read(begin, tuple(array[rows : rows + count] for array in space))
            rows += count
        return tuple(array[:rows] for array in space)

    def _read(self, begin: int, into: Arrays) -> None:
        with self._while_open():
            for file, array in zip(self._files, into, strict=True):
                place = begin * (array.nbytes // len(array))
                rest = _bytes_of(array)
                while rest:
                    count = os.preadv(file.fileno(), [rest], place)
                    if count == 0:
                        raise OSError(f"rows that were spilled to {self._folder} are missing")
                    rest, place = rest[count:], place + count


def shuffled(arrays: Arrays, random: np.random.Generator) -> Iterator[Arrays]:
    """The rows of these arrays, copied, in pieces."""
    order = random.permutation(len(arrays[0]))
    for begin, end in _steps(arrays):
        yield tuple(np.take(array, order[begin:end], axis=0) for array in arrays)


def sliced(arrays: Arrays) -> Iterator[Arrays]:
    """The same in their order, and not copied."""
    for begin, end in _steps(arrays):
        yield tuple(array[begin:end] for array in arrays)


def _steps(arrays: Arrays) -> Iterator[tuple[int, int]]:
    rows, step = len(arrays[0]), _rows_in(PIECE_BYTES, arrays)
    return ((begin, min(begin + step, rows)) for begin in range(0, rows, step))


def _rows_in(budget: int, arrays: Arrays) -> int:
    """How many rows like these are that many bytes; one at least."""
    return max(1, budget // _row_bytes(arrays))


def _row_bytes(arrays: Arrays) -> int:
    return sum(array[:1].nbytes for array in arrays)


def _nameless(folder: str) -> FileIO:
    return tempfile.TemporaryFile(dir=folder, buffering=0)


def _bytes_of(array: np.ndarray) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))


def _write(file: FileIO, array: np.ndarray) -> None:
    rest = _bytes_of(np.ascontiguousarray(array))
    while rest:
        rest = rest[file.write(rest) :]
