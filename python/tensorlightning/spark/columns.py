"""Rows of Spark's as arrays: one for each column, for many rows at once.

    columns = [Column("image", (28, 28), "uint8"), Column("label")]
    for images, labels in from_arrow(batches, columns):     # in mapInArrow
    for images, labels in from_rows(rows, columns):         # in mapPartitions

From Arrow nothing is copied row by row, and what Arrow keeps as NumPy would is not copied at all:
such arrays are views, not to be written to. Binary columns are the fastest by far.

Rows must all be alike, and hold nothing but finite numbers. The first that does not is a RowError.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

Arrays = tuple[np.ndarray, ...]
Shape = tuple[int, ...]

_MOST_CONTENT = 60  # Characters of a row that an error shows.
_BYTES_AT_ONCE = 8 << 20
_BINARY_TYPES = {1: np.dtype(np.uint8), 4: np.dtype(np.float32), 8: np.dtype(np.float64)}


@dataclass(frozen=True)
class Column:
    """A column of numbers: what a row holds.

    Without a shape, rows are like the first one: a number, a list, lists of lists. Without a dtype,
    numbers stay what they are, but float64 becomes float32. Of binary columns the dtype says what
    the bytes are; without one, their number does (1 for each place of the shape: uint8, 4: float32,
    8: float64), and without a shape, too, they are uint8.
    """

    name: str
    shape: Shape | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        if self.shape is not None:
            object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
            if any(size < 1 for size in self.shape):
                raise ValueError(f"column '{self.name}' has shape {self.shape}: 1 is the least")
        if self.dtype is not None:
            object.__setattr__(self, "dtype", str(np.dtype(self.dtype)))
            if np.dtype(self.dtype).kind not in "biuf":
                raise ValueError(f"column '{self.name}' is to be {self.dtype}, and holds numbers")


class RowError(ValueError):
    """A row that is not what it should be: says which one, and what it holds."""


def from_arrow(batches: "Iterator[pa.RecordBatch]", columns: Sequence[Column]) -> Iterator[Arrays]:
    """An array for each column of each batch; batches without rows are left out."""
    # Rows of an RDD need no Arrow.
    from tensorlightning.spark import arrow_columns

    return arrow_columns.arrays(batches, columns)


def from_rows(
    rows: Iterator[Any], columns: Sequence[Column], rows_at_once: int = 256
) -> Iterator[Arrays]:
    """The same for an RDD's rows. Row, dict, namedtuple and other objects are read by name, plain
    tuples and lists by position.
    """
    makers = [_FromRows(column) for column in columns]
    for number, row in enumerate(rows):
        _pick(makers, row, number)
        if makers[0].held >= rows_at_once or sum(m.bytes for m in makers) >= _BYTES_AT_ONCE:
            yield tuple(maker.array() for maker in makers)
    if makers[0].held:
        yield tuple(maker.array() for maker in makers)


class Maker:
    """Makes arrays of one column, and remembers what its first row was like."""

    def __init__(self, column: Column):
        self.column = column
        self.shape: Shape | None = None  # Of the first row, as it came.
        self.content: Callable[[int], Any]  # Of a row in the array that is being made.
        self._rows = 0  # In the arrays made so far.
        self._bytes_are: np.dtype | None = None
        self._dtype: np.dtype | None = None

    def error(self, row: int, expected: str, found: str) -> RowError:
        return _row_error(self.column.name, self._rows + row, expected, found, self.content(row))

    def check_shape(self, row: int, found: Shape) -> None:
        """Rows have the shape of the first one, and that fits the column's."""
        if self.shape is None:
            if 0 in found or not _fits(found, self.column.shape):
                raise self.error(row, numbers_text(self.column.shape), numbers_text(found))
            self.shape = found
        elif found != self.shape:
            expected = f"{numbers_text(self.shape)} as in other rows"
            raise self.error(row, expected, numbers_text(found))

    def bytes_type(self, row: int, length: int) -> np.dtype:
        """What the bytes of a binary row are; the first row says it, if the column does not."""
        if self._bytes_are is None:
            self._bytes_are = _bytes_type(self.column, length)
        if self._bytes_are is None or length % self._bytes_are.itemsize:
            sizes = _BINARY_TYPES if self._bytes_are is None else (self._bytes_are.itemsize,)
            each = " or ".join(map(str, sizes))
            expected = f"{numbers_text(self.column.shape)} of {each} bytes each"
            raise self.error(row, expected, f"{length} bytes")
        return self._bytes_are

    def finish(self, numbers: np.ndarray, rows: int) -> np.ndarray:
        """The numbers of these rows, checked, in the shape and type that are wanted."""
        shape = self.shape if self.column.shape is None else self.column.shape
        numbers = numbers.reshape(rows, *(shape or ()))
        if self._dtype is None:
            self._dtype = _result_type(numbers.dtype, self.column.dtype)
        result = numbers
        if numbers.dtype != self._dtype:
            with np.errstate(all="ignore"):
                result = numbers.astype(self._dtype)
            if self._dtype.kind in "biu":
                self._check_all(result == numbers, numbers, f"numbers that fit {self._dtype}")
        if result.dtype.kind == "f" and not _surely_finite(result):
            self._check_all(np.isfinite(result), numbers, f"finite numbers ({result.dtype})")
        self._rows += rows
        return result if result.flags.aligned else result.copy()

    def _check_all(self, right: np.ndarray, numbers: np.ndarray, expected: str) -> None:
        if not right.all():
            position = int(right.argmin())
            row, place = divmod(position, right[0].size)
            raise self.error(row, expected, f"{numbers.reshape(-1)[position]} (number {place})")


class _FromRows(Maker):
    def __init__(self, column: Column):
        super().__init__(column)
        self.bytes = 0
        self._values: list[Any] = []  # As they came, and as arrays.
        self._arrays: list[np.ndarray] = []
        self.content = lambda row: self._values[row]

    @property
    def held(self) -> int:
        return len(self._arrays)

    def add(self, value: Any) -> None:
        row = len(self._values)
        self._values.append(value)
        if isinstance(value, bytes | bytearray | memoryview):
            array = np.frombuffer(value, self.bytes_type(row, len(value)))
        else:
            # Vectors of MLlib say themselves what they are as arrays.
            array = self._plain(row, value.toArray() if hasattr(value, "toArray") else value)
        self.check_shape(row, array.shape)
        self._arrays.append(array)
        self.bytes += array.nbytes

    def _plain(self, row: int, value: Any) -> np.ndarray:
        try:
            array = np.asarray(value)
        except ValueError:
            raise self.error(row, "lists of one length", "several") from None
        if array.dtype.kind in "biuf":
            return array
        others = [item for item in array.flat if not isinstance(item, int | float)]
        found = type(others[0]).__name__.rstrip("_") if others else "too large ones"
        raise self.error(row, "numbers", "null" if found == "NoneType" else found)

    def array(self) -> np.ndarray:
        result = self.finish(np.stack(self._arrays), len(self._arrays))
        self._values.clear()
        self._arrays.clear()
        self.bytes = 0
        return result


def _pick(makers: Sequence[_FromRows], row: Any, number: int) -> None:
    """A row's values, each to the maker of its column."""
    named = hasattr(row, "__fields__")  # Of pyspark's Row, if it has names.
    if isinstance(row, tuple | list) and not named and not hasattr(row, "_fields"):
        if len(row) != len(makers):
            name, expected = makers[0].column.name, f"{len(makers)} columns"
            raise _row_error(name, number, expected, f"{len(row)}", row)
        for maker, value in zip(makers, row, strict=True):
            maker.add(value)
        return
    for maker in makers:
        name = maker.column.name
        try:
            value = row[name] if named or isinstance(row, dict) else getattr(row, name)
        except (AttributeError, KeyError, ValueError):
            found = f"none in {type(row).__name__}"
            raise _row_error(name, number, "such a column", found, row) from None
        maker.add(value)


def _row_error(column: str, row: int, expected: str, found: str, content: Any) -> RowError:
    text = " ".join(repr(content).split())
    if len(text) > _MOST_CONTENT:
        text = text[: _MOST_CONTENT - 1] + "…"
    return RowError(
        f"column '{column}', row {row} of this partition: expected {expected}, found {found}; "
        f"it holds {text}"
    )


def _fits(found: Shape, wanted: Shape | None) -> bool:
    """Flat numbers take any shape, and any shape becomes flat; otherwise only ones may differ."""
    if wanted is None:
        return True
    if len(found) > 1 and len(wanted) > 1:
        return [size for size in found if size > 1] == [size for size in wanted if size > 1]
    return math.prod(found) == math.prod(wanted)


def numbers_text(shape: Shape | None) -> str:
    if shape is None:
        return "numbers"
    if math.prod(shape) == 1 and len(shape) < 2:
        return "one number"
    return f"{' x '.join(map(str, shape))} numbers"


def _bytes_type(column: Column, length: int) -> np.dtype | None:
    if column.dtype is not None:
        # As bool every byte would pass; as a number, one that is neither 0 nor 1 is found.
        return np.dtype(np.uint8 if column.dtype == "bool" else column.dtype)
    if column.shape is None:
        return np.dtype(np.uint8)
    size, rest = divmod(length, math.prod(column.shape))
    return None if rest else _BINARY_TYPES.get(size)


def _result_type(found: np.dtype, wanted: str | None) -> np.dtype:
    if wanted is not None:
        return np.dtype(wanted).newbyteorder("=")
    return np.dtype(np.float32) if found == np.float64 else found.newbyteorder("=")


def _surely_finite(numbers: np.ndarray) -> bool:
    """One pass, and no other array: what is not finite shows in the sum.

    False proves nothing: sums of finite numbers overflow, too.
    """
    with np.errstate(all="ignore"):
        return bool(np.isfinite(numbers.sum(dtype=np.result_type(numbers, np.float32))))
