"""A DataFrame's partitions, with a task on each that trains, and the records that come back.

records = train_all(job, frame, workers=4, train=functools.partial(train, ticket=job.ticket))
"""

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from tensorlightning.spark.columns import Column, from_rows
from tensorlightning.spark.job import Job
from tensorlightning.spark.task import RECORD_FIELDS, RECORD_SCHEMA

Record = dict[str, Any]
Train = Callable[[Iterator[pa.RecordBatch]], Record]

_KINDS = {"int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(), "string": pa.string()}
_RECORD = pa.schema(
    [(name, _KINDS[kind]) for name, kind in map(str.split, RECORD_SCHEMA.split(", "))]
)


def train_all(job: Job, frame: DataFrame, workers: int | None, train: Train) -> list[Record]:
    """Each partition's record, with its history as it was, in their order.

    `workers`: into so many partitions. A ValueError if there are no rows at all.
    """
    task = functools.partial(_train_partition, train=train)
    rows = job.run(lambda: _spread(job, frame, workers, task).collect())
    records = [row.asDict() | {"history": json.loads(row.history or "{}")} for row in rows]
    if all(record["rank"] is None for record in records):
        raise ValueError("there is not a single row to train on")
    return sorted(records, key=lambda record: record["partition"])


def first_row(frame: DataFrame, columns: Sequence[Column]) -> Sequence[np.ndarray]:
    """Of each column an array with one row."""
    for arrays in from_rows(iter(frame.limit(1).collect()), columns):
        return arrays
    raise ValueError("there is not a single row to train on")


def _train_partition(batches: Iterator[pa.RecordBatch], train: Train) -> Iterator[pa.RecordBatch]:
    record = train(_as_they_come(batches))
    yield pa.RecordBatch.from_pylist([{name: record[name] for name in RECORD_FIELDS}], _RECORD)


def _as_they_come(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of a stream that breaks off Arrow says, with a ValueError, that its content is wrong. But it
    is whoever sends it that was lost, and another attempt may get all of it.
    """
    try:
        yield from batches
    except (pa.ArrowException, OSError) as error:
        raise ConnectionError(f"Spark's rows have broken off: {error}") from error


def _spread(job: Job, frame: DataFrame, workers: int | None, task: Callable[..., Any]) -> DataFrame:
    """One partition for each worker; rows are moved only if their number is another."""
    spread = frame.mapInArrow(task, RECORD_SCHEMA)
    # Asked of what is to run: what Spark has to run to answer it need not run again.
    count = spread.rdd.getNumPartitions()
    if workers is None:
        job.expect(count)
    if workers in (None, count):
        return spread
    return frame.repartition(workers).mapInArrow(task, RECORD_SCHEMA)
