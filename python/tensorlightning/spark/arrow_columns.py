"""Columns of Arrow's record batches as arrays: columns.from_arrow(), the part that knows Arrow."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types

from tensorlightning.spark.columns import Arrays, Column, Maker, Shape, numbers_text


def arrays(batches: Iterator[pa.RecordBatch], columns: Sequence[Column]) -> Iterator[Arrays]:
    makers = [_FromArrow(column) for column in columns]
    for batch in batches:
        if batch.num_rows:
            yield tuple(maker.array(_find(batch, maker.column.name)) for maker in makers)


class _FromArrow(Maker):
    def array(self, column: pa.Array) -> np.ndarray:
        self.content = lambda row: column[row].as_py()
        self._check_type(column.type)
        self._check_nulls(column, 1)
        numbers = self._binary(column) if _is_binary(column.type) else self._numbers(column)
        return self.finish(numbers, len(column))

    def _check_type(self, kind: pa.DataType) -> None:
        number = kind
        while _is_list(number):
            number = number.value_type
        plain = types.is_integer(number) or types.is_floating(number) or types.is_boolean(number)
        if not plain and not _is_binary(kind):
            raise TypeError(
                f"column '{self.column.name}' is {kind}: a number, an array of numbers or binary "
                "can be read; cast it"
            )

    def _binary(self, column: pa.Array) -> np.ndarray:
        lengths = _lengths(column)
        number = self.bytes_type(0, int(lengths[0]))
        if self.shape is None:
            self.check_shape(0, (int(lengths[0]) // number.itemsize,))
        size = self.shape[0] * number.itemsize
        different = np.flatnonzero(lengths != size)
        if different.size:
            row = int(different[0])
            raise self.error(row, f"{size} bytes as in other rows", f"{lengths[row]}")
        return _data(column).view(number)

    def _numbers(self, column: pa.Array) -> np.ndarray:
        """Of scalars, lists, and lists of lists."""
        if self.shape is None:
            self.check_shape(0, _shape_of(column[0].as_py()))
        level, lists = column, 1  # So many lists of this level are in a row.
        for size in self.shape:
            lengths = _lengths(level)
            different = np.flatnonzero(lengths != size)
            if different.size:
                length = lengths[different[0]]
                expected = f"{numbers_text(self.shape)} as in other rows"
                raise self.error(int(different[0]) // lists, expected, f"a list of {length}")
            lists *= size
            level = level.flatten()
            self._check_nulls(level, lists)
        return level.to_numpy(zero_copy_only=False)

    def _check_nulls(self, level: pa.Array, per_row: int) -> None:
        if level.null_count:
            nulls = level.is_null().to_numpy(zero_copy_only=False)
            raise self.error(int(nulls.argmax()) // per_row, "numbers", "null")


def _find(batch: pa.RecordBatch, name: str) -> pa.Array:
    index = batch.schema.get_field_index(name)
    if index < 0:
        names = ", ".join(batch.schema.names)
        raise ValueError(f"there is no column '{name}', or more than one: there are {names}")
    return batch.column(index)


def _is_binary(kind: pa.DataType) -> bool:
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def _is_list(kind: pa.DataType) -> bool:
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _shape_of(value: object) -> Shape:
    """Of nested lists, by the first of each."""
    shape: Shape = ()
    while isinstance(value, list):
        shape = (*shape, len(value))
        value = value[0] if value else None
    return shape


def _offsets(array: pa.Array) -> np.ndarray:
    large = types.is_large_binary(array.type) or types.is_large_list(array.type)
    offsets = np.frombuffer(array.buffers()[1], np.int64 if large else np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def _lengths(array: pa.Array) -> np.ndarray:
    """Of lists in items, of binaries in bytes."""
    if types.is_fixed_size_binary(array.type):
        return np.full(len(array), array.type.byte_width)
    if types.is_fixed_size_list(array.type):
        return np.full(len(array), array.type.list_size)
    return np.diff(_offsets(array))


def _data(array: pa.Array) -> np.ndarray:
    """The bytes of binaries, one after the other, where Arrow has them."""
    if types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        begin, end = array.offset * width, (array.offset + len(array)) * width
        buffer = array.buffers()[1]
    else:
        begin, end = _offsets(array)[[0, -1]]
        buffer = array.buffers()[2]
    return np.frombuffer(buffer, np.uint8)[begin:end]
