"""Columns of Arrow's and rows of an RDD as arrays, and rows that are none."""

import collections
import pickle
import re
from dataclasses import dataclass

import numpy as np
import pytest
from tensorlightning.spark.columns import Column, RowError, from_arrow, from_rows

pa = pytest.importorskip("pyarrow")

Pair = collections.namedtuple("Pair", "x y")


class Row(tuple):
    """As pyspark's: a tuple that knows the names of its fields."""

    def __new__(cls, **values):
        row = super().__new__(cls, values.values())
        row.__fields__ = list(values)
        return row

    def __getitem__(self, item):
        if isinstance(item, str):
            return super().__getitem__(self.__fields__.index(item))
        return super().__getitem__(item)


class Vector:
    """As MLlib's."""

    def __init__(self, *values):
        self._values = values

    def toArray(self):  # noqa: N802
        return np.array(self._values, float)


def batch(**columns):
    arrays = [c if isinstance(c, pa.Array) else pa.array(c) for c in columns.values()]
    return pa.record_batch(arrays, list(columns))


def arrow(values, kind=None, **column):
    """The one column of one batch."""
    batches = [batch(x=pa.array(values, kind))]
    [[result]] = from_arrow(iter(batches), [Column("x", **column)])
    return result


def rows(*values, **column):
    pieces = list(from_rows(iter([(value,) for value in values]), [Column("x", **column)]))
    return np.concatenate([piece[0] for piece in pieces])


def lies_in(array: np.ndarray, buffer) -> bool:
    begin = array.__array_interface__["data"][0]
    return buffer.address <= begin and begin + array.nbytes <= buffer.address + buffer.size


def random_numbers(dtype, shape, seed=0):
    numbers = np.random.default_rng(seed).integers(0, 100, shape)
    return numbers.astype(dtype)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(12)])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int16", ">f4"])
def test_binary_is_read_where_it_lies(kind, dtype):
    numbers = random_numbers(dtype, (9, 12 // np.dtype(dtype).itemsize))
    column = pa.array([row.tobytes() for row in numbers], kind)
    for part, expected in ((column, numbers), (column.slice(2, 5), numbers[2:7])):
        [[result]] = from_arrow(iter([batch(x=part)]), [Column("x", dtype=dtype)])
        np.testing.assert_array_equal(result, expected)
        assert result.dtype.isnative
        if np.dtype(dtype).isnative:
            assert lies_in(result, column.buffers()[-1])


@pytest.mark.parametrize(
    ("dtype", "expected"), [("uint8", "uint8"), ("float32", "float32"), ("float64", "float32")]
)
def test_the_number_of_bytes_tells_what_they_are(dtype, expected):
    numbers = random_numbers(dtype, (5, 2, 3))
    data = [row.tobytes() for row in numbers]
    for result in (arrow(data, shape=(2, 3)), rows(*data, shape=(2, 3))):
        assert result.dtype == expected
        np.testing.assert_array_equal(result, numbers)


def test_binary_that_does_not_begin_at_a_number_is_aligned():
    numbers = random_numbers("float32", (4, 3))
    data = pa.py_buffer(b"x" + numbers.tobytes())
    offsets = pa.py_buffer(np.arange(1, 50, 12, dtype=np.int32))
    column = pa.Array.from_buffers(pa.binary(), 4, [None, offsets, data])
    [[result]] = from_arrow(iter([batch(x=column)]), [Column("x", (3,))])
    assert result.flags.aligned
    np.testing.assert_array_equal(result, numbers)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "uint8"])
@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, lambda item: pa.list_(item, 6)])
def test_lists_are_read_where_they_lie(dtype, kind):
    numbers = random_numbers(dtype, (7, 6))
    column = pa.array(numbers.tolist(), kind(pa.from_numpy_dtype(dtype)))
    for part, expected in ((column, numbers), (column.slice(3, 4), numbers[3:7])):
        [[result]] = from_arrow(iter([batch(x=part)]), [Column("x", (2, 3))])
        assert result.dtype == dtype
        assert lies_in(result, column.buffers()[-1])
        np.testing.assert_array_equal(result, expected.reshape(-1, 2, 3))


def test_lists_of_lists_have_their_shape():
    numbers = random_numbers("float32", (4, 2, 3, 5))
    kind = pa.list_(pa.list_(pa.list_(pa.float32()), 3))
    column = pa.array(numbers.tolist(), kind)
    for shape in (None, (2, 3, 5), (30,), (2, 3, 1, 5)):
        [[result]] = from_arrow(iter([batch(x=column.slice(1))]), [Column("x", shape)])
        np.testing.assert_array_equal(result, numbers[1:].reshape(3, *(shape or (2, 3, 5))))
        assert lies_in(result, column.buffers()[-1])


@pytest.mark.parametrize(
    ("values", "kind", "dtype"),
    [
        ([1, 2, 3], pa.int8(), "int8"),
        ([1, 2, 3], pa.int64(), "int64"),
        ([1, 2, 3], pa.float16(), "float16"),
        ([1, 2, 3], pa.float64(), "float32"),
        ([True, False, True], pa.bool_(), "bool"),
    ],
)
def test_numbers_stay_what_they_are_but_float64_becomes_float32(values, kind, dtype):
    result = arrow(values, kind)
    assert (result.shape, result.dtype) == ((3,), dtype)
    np.testing.assert_array_equal(result, values)
    assert arrow(values, kind, shape=(1,)).shape == (3, 1)


def test_a_dtype_that_is_asked_for_is_given():
    assert arrow([1.5, 2.0], dtype="float64").dtype == np.float64
    assert arrow([[1, 2]], dtype="float32").dtype == np.float32
    assert arrow([3.0, 4.0], dtype="int32").tolist() == [3, 4]
    assert arrow([b"\0\1"], dtype="bool").tolist() == [[False, True]]


def test_batches_without_rows_are_left_out():
    batches = [
        batch(x=pa.array(values, pa.float32())) for values in ([], [1.0], [], [2.0, 3.0], [])
    ]
    assert [x.tolist() for [x] in from_arrow(iter(batches), [Column("x")])] == [[1], [2, 3]]
    assert list(from_arrow(iter([]), [Column("x")])) == []
    assert list(from_rows(iter([]), [Column("x")])) == []


def test_rows_are_read_by_name_or_by_position():
    @dataclass
    class Point:
        y: int
        x: list

    same = [
        Row(y=1, x=[2.0, 3.0]),
        {"y": 1, "z": "other", "x": [2.0, 3.0]},
        Pair([2.0, 3.0], 1),
        Point(1, [2.0, 3.0]),
        ([2.0, 3.0], 1),
        [Vector(2, 3), 1],
        (np.array([2, 3], np.float32), np.int64(1)),
        ((2.0, 3.0), True),
    ]
    [[x, y]] = from_rows(iter(same), [Column("x"), Column("y")])
    assert (x.dtype, y.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(x, [[2, 3]] * len(same))
    np.testing.assert_array_equal(y, [1] * len(same))


def test_as_many_rows_as_are_asked_for_are_in_an_array():
    numbers = [(i,) for i in range(600)]
    sizes = [len(x) for [x] in from_rows(iter(numbers), [Column("x")])]
    assert sizes == [256, 256, 88]
    sizes = [len(x) for [x] in from_rows(iter(numbers), [Column("x")], rows_at_once=599)]
    assert sizes == [599, 1]


def test_large_rows_are_fewer():
    large = [(bytes(5 << 20),) for _ in range(5)]
    assert [len(x) for [x] in from_rows(iter(large), [Column("x")])] == [2, 2, 1]


ARROW_TROUBLES = [
    ([1.0, None], {}, "row 1 .* expected numbers, found null; it holds None"),
    ([[1.0], [2.0], [None]], {}, r"row 2 .* found null; it holds \[None\]"),
    ([[[1]], [[2]], None], {}, "row 2 .* found null"),
    ([[[1, 2]], [None]], {}, "row 1 .* found null"),
    ([[1.0, 2.0], [3.0]], {}, r"row 1 .* 2 numbers as in other rows, found a list of 1"),
    (
        [[[1, 2]], [[3, 4]], [[5]]],
        {},
        r"row 2 .* 1 x 2 numbers as in .*, found a list of 1",
    ),
    ([[[1, 2], [3]]], {}, r"row 0 .* 2 x 2 numbers as in other rows, found a list of 1"),
    ([np.zeros(0)], {}, "row 0 .* expected numbers, found 0 numbers"),
    ([[1, 2, 3]], {"shape": (2, 2)}, "row 0 .* expected 2 x 2 numbers, found 3 numbers"),
    ([[[1, 2, 3], [4, 5, 6]]], {"shape": (3, 2)}, "expected 3 x 2 numbers, found 2 x 3 numbers"),
    ([1], {"shape": (4,)}, "expected 4 numbers, found one number"),
    ([b"1234", b"123"], {}, "row 1 .* expected 4 bytes as in other rows, found 3; it holds b'123'"),
    ([b""], {}, "row 0 .* found 0 numbers"),
    ([b"12345678"], {"shape": (4,)}, "expected 4 numbers of 1 or 4 or 8 bytes each, found 8 bytes"),
    ([b"12345"], {"dtype": "float32"}, "expected numbers of 4 bytes each, found 5 bytes"),
    ([b"1234"], {"shape": (4,), "dtype": "float32"}, "expected 4 numbers, found one number"),
    ([b"\0\5"], {"dtype": "bool"}, r"expected numbers that fit bool, found 5 \(number 1\)"),
    (
        [[0.0, 1.0], [2.0, np.nan]],
        {},
        r"row 1 .* finite .* \(float32\), found nan \(number 1\)",
    ),
    ([0.0, np.inf], {}, "row 1 .* found inf"),
    ([1.0, 1e300], {}, r"row 1 .* finite numbers \(float32\), found 1e\+300"),
    ([1, 300], {"dtype": "uint8"}, "row 1 .* expected numbers that fit uint8, found 300"),
    ([1, -1], {"dtype": "uint64"}, "row 1 .* expected numbers that fit uint64, found -1"),
    ([1.0, 1.5], {"dtype": "int32"}, "row 1 .* expected numbers that fit int32, found 1.5"),
    ([1.0, np.nan], {"dtype": "int32"}, "row 1 .* expected numbers that fit int32, found nan"),
]


@pytest.mark.parametrize(("values", "column", "message"), ARROW_TROUBLES)
def test_a_bad_row_of_arrow_is_named(values, column, message):
    with pytest.raises(RowError, match=message):
        arrow(values, **column)


ROW_TROUBLES = [
    ([1.0, None], {}, "row 1 .* expected numbers, found null; it holds None"),
    ([[1.0, None]], {}, "row 0 .* expected numbers, found null"),
    ([1, "one"], {}, "row 1 .* expected numbers, found str; it holds 'one'"),
    ([1 << 70], {}, "expected numbers, found too large ones"),
    ([[1.0, 2.0], [3.0]], {}, "row 1 .* 2 numbers as in other rows, found one number"),
    ([[[1, 2], [3]]], {}, "row 0 .* lists of one length, found several"),
    ([[]], {}, "row 0 .* found 0 numbers"),
    ([[1, 2, 3]], {"shape": (2, 2)}, "row 0 .* expected 2 x 2 numbers, found 3 numbers"),
    ([np.zeros((2, 3))], {"shape": (3, 2)}, "expected 3 x 2 numbers, found 2 x 3 numbers"),
    ([b"1234", b"123"], {}, "row 1 .* expected 4 numbers as in other rows, found 3 numbers"),
    ([b"12345"], {"dtype": "float32"}, "expected numbers of 4 bytes each, found 5 bytes"),
    ([1.0, float("nan")], {}, "row 1 .* found nan"),
    ([1, 300], {"dtype": "uint8"}, "row 1 .* expected numbers that fit uint8, found 300"),
    ([1] * 256 + [1.5], {}, "row 256 .* expected numbers that fit int64, found 1.5"),
]


@pytest.mark.parametrize(("values", "column", "message"), ROW_TROUBLES)
def test_a_bad_row_of_an_rdd_is_named(values, column, message):
    with pytest.raises(RowError, match=message):
        rows(*values, **column)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1,), r"row 1 .* expected 2 columns, found 1; it holds \(1,\)"),
        ({"x": 1}, "column 'y', row 1 .* expected such a column, found none in dict"),
        (Row(x=1), "column 'y', row 1 .* found none in Row"),
        (Vector(1, 2), "column 'x', row 1 .* found none in Vector"),
    ],
)
def test_a_row_without_its_columns_is_named(row, message):
    with pytest.raises(RowError, match=message):
        list(from_rows(iter([(1, 2), row]), [Column("x"), Column("y")]))


def test_rows_are_counted_through_the_partition():
    good, bad = batch(x=[[1.0]] * 10), batch(x=[[1.0], [2.0, 3.0]])
    with pytest.raises(RowError, match=r"row 21 .* expected one number as in other rows"):
        list(from_arrow(iter([good, good, bad]), [Column("x")]))
    other = batch(x=[[1.0, 2.0]] * 3)
    with pytest.raises(RowError, match=r"row 10 .* expected one number as in other rows"):
        list(from_arrow(iter([good, other]), [Column("x")]))


def test_a_bad_row_is_found_wherever_it_is():
    random = np.random.default_rng(7)
    for _ in range(50):
        count, width = random.integers(1, 40, 2)
        row, place = random.integers(count), random.integers(width)
        numbers = random.standard_normal((count, width))
        numbers[row, place] = random.choice([np.nan, np.inf, -np.inf])
        message = rf"row {row} .* \(number {place}\)"
        with pytest.raises(RowError, match=message):
            arrow(numbers.tolist())
        with pytest.raises(RowError, match=message):
            rows(*numbers)


def test_content_is_cut_short_and_the_error_travels():
    with pytest.raises(RowError) as raised:
        arrow([[0.5] * 10_000 + [np.nan]])
    text = str(raised.value)
    assert "it holds [0.5, 0.5, 0.5" in text and text.endswith("…") and len(text) < 250
    assert str(pickle.loads(pickle.dumps(raised.value))) == text


def test_large_numbers_are_finite_though_their_sum_is_not():
    assert arrow([[3e38, 3e38], [-3e38, 3e38]], pa.list_(pa.float32())).shape == (2, 2)


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string()), pa.decimal128(5, 2)])
def test_columns_that_hold_no_numbers_are_refused(kind):
    with pytest.raises(TypeError, match=re.escape(f"column 'x' is {kind}")):
        arrow([None], kind)


def test_columns_that_are_not_there_are_named():
    with pytest.raises(ValueError, match="no column 'y', or more than one: there are x"):
        list(from_arrow(iter([batch(x=[1])]), [Column("y")]))


def test_columns_are_checked():
    assert Column("x", [2, np.int64(3)], np.float32) == Column("x", (2, 3), "float32")
    with pytest.raises(ValueError, match="1 is the least"):
        Column("x", (0,))
    with pytest.raises(ValueError, match="holds numbers"):
        Column("x", dtype="str")
    with pytest.raises(TypeError):
        Column("x", dtype="no such")
