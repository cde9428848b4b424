"""Which columns of a DataFrame a model takes: checked in the driver, before anything runs."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark import SparkContext
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)
from pyspark.sql import types as T  # noqa: N812

from tensorlightning.spark.columns import Column
from tensorlightning.spark.keras_models import Array

# What columns are called that have no name, or one that Spark stumbles over.
OWN = "__tensorlightning_{}"


def context_of(frame: DataFrame) -> SparkContext:
    if not hasattr(frame, "sparkSession"):
        raise TypeError(f"rows come from a DataFrame of Spark's, and this is a {type(frame)}")
    try:
        context = frame.sparkSession.sparkContext
    except Exception as error:  # A class of its own in each version.
        raise RuntimeError(
            "there is no SparkContext: a client of Spark Connect has none; start the driver in the "
            "cluster (spark-submit), and train there"
        ) from error
    if context._jsc is None:
        raise RuntimeError("the DataFrame's SparkSession has been stopped: make another one")
    return context


def check_columns(frame: DataFrame, names: Sequence[str]) -> None:
    """They exist, and hold numbers."""
    if missing := [name for name in names if name not in frame.columns]:
        raise ValueError(
            f"there is no column {missing[0]!r}: there are {', '.join(frame.columns)} "
            "(features=, label= and prediction= say which to use)"
        )
    for name in names:
        kind = frame.schema[name].dataType
        if not _holds_numbers(kind):
            raise ValueError(
                f"column {name!r} is {kind.simpleString()}: a model takes numbers, arrays of "
                "numbers, vectors and binary"
            )


def inputs_of(
    frame: DataFrame, names: Sequence[str], inputs: Sequence[Array] | None
) -> list[Column]:
    """Feature columns, in the shapes in which the model takes them. None: as they come."""
    if inputs is None:
        return [Column(name) for name in names]
    if len(inputs) != len(names):
        raise ValueError(
            f"the model has {len(inputs)} inputs, and features= names {len(names)} columns "
            f"({', '.join(names)}). VectorAssembler makes one column of several"
        )
    return [
        _input(name, frame.schema[name].dataType, array)
        for name, array in zip(names, inputs, strict=True)
    ]


def chosen(frame: DataFrame, columns: Sequence[Column]) -> tuple[DataFrame, list[Column]]:
    """Only these columns, vectors as arrays; and how they are called then."""
    names = [column.name for column in columns]
    # A column may be there twice: what an autoencoder learns is what it takes.
    renamed = [
        replace(column, name=_plain(column.name, number, column.name in names[:number]))
        for number, column in enumerate(columns)
    ]
    pairs = zip(columns, renamed, strict=True)
    return frame.select([_as_numbers(frame, old).alias(new.name) for old, new in pairs]), renamed


def with_arrays(frame: DataFrame, columns: Sequence[Column]) -> tuple[DataFrame, list[Column]]:
    """All columns, then arrays of those that are vectors; and how `columns` are called then."""
    names = [_plain(name, number) for number, name in enumerate(frame.columns)]
    selected = [_column(old).alias(new) for old, new in zip(frame.columns, names, strict=True)]
    renamed = []
    for column in columns:
        index = frame.columns.index(column.name)
        if isinstance(frame.schema[index].dataType, VectorUDT):
            array = OWN.format(len(selected))
            selected.append(_as_numbers(frame, column).alias(array))
            renamed.append(replace(column, name=array))
        else:
            renamed.append(replace(column, name=names[index]))
    return frame.select(selected), renamed


def _plain(name: str, number: int, is_taken: bool = False) -> str:
    """mapInArrow takes a dot for a part of a structure."""
    return OWN.format(number) if is_taken or "." in name or "`" in name else name


def _column(name: str) -> SparkColumn:
    quoted = name.replace("`", "``")
    return F.col(f"`{quoted}`")


def _as_numbers(frame: DataFrame, column: Column) -> SparkColumn:
    """The column itself, or as an array if it is one of vectors."""
    found = _column(column.name)
    is_vector = isinstance(frame.schema[column.name].dataType, VectorUDT)
    return vector_to_array(found, "float32") if is_vector else found


def _input(name: str, kind: T.DataType, array: Array) -> Column:
    shape = None if None in array.shape else array.shape
    # Bytes do not tell what they are; a model that takes whole numbers does.
    told = isinstance(kind, T.BinaryType) and "int" in array.dtype
    return Column(name, shape, array.dtype if told else None)


def _holds_numbers(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _holds_numbers(kind.elementType) and not isinstance(kind.elementType, T.BinaryType)
    if isinstance(kind, T.DecimalType):
        return False
    return isinstance(kind, (T.NumericType, T.BooleanType, T.BinaryType, VectorUDT))
