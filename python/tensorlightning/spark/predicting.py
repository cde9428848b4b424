"""ElasticModel.transform()'s part in a task: batches of Arrow in, the same with a prediction out.

The model comes as a broadcast, once per executor. A Python worker, which Spark uses for many tasks,
builds it once.
"""

import functools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import Broadcast

from tensorlightning.spark import keras_models
from tensorlightning.spark.columns import Column, from_arrow

# Pipelines with several models would else build them anew for each partition.
MODELS_KEPT = 4


@dataclass(frozen=True)
class Sent:
    """A model on its way to tasks. Equal: the same model."""

    digest: str
    saved: Broadcast = field(compare=False)


@functools.lru_cache(MODELS_KEPT)
def _model(sent: Sent) -> Any:
    return keras_models.load(sent.saved.value, to_train=False)


def predict(
    batches: Iterator[pa.RecordBatch],
    *,
    sent: Sent,
    columns: Sequence[Column],
    names: Sequence[str],
    rows_at_once: int,
) -> Iterator[pa.RecordBatch]:
    """Columns as they are, under these names, and the prediction as the last of them."""
    pending: deque[pa.RecordBatch] = deque()

    def noted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                pending.append(batch)
                yield batch

    for arrays in from_arrow(noted(), columns):
        batch = pending.popleft()
        said = [
            _model(sent).predict_on_batch(_inputs(arrays, begin, begin + rows_at_once))
            for begin in range(0, batch.num_rows, rows_at_once)
        ]
        yield pa.RecordBatch.from_arrays(
            [*batch.columns[: len(names) - 1], as_arrow(np.concatenate(said))], names=list(names)
        )


def as_arrow(values: np.ndarray) -> pa.Array:
    """One number per row as double, several as (lists of) lists of float."""
    if values.size == len(values):
        return pa.array(values.reshape(-1).astype(np.float64))
    result = pa.array(np.ascontiguousarray(values, np.float32).reshape(-1))
    for size in reversed(values.shape[1:]):
        offsets = pa.array(np.arange(0, len(result) + 1, size, np.int32))
        result = pa.ListArray.from_arrays(offsets, result)
    return result


def _inputs(arrays: Sequence[np.ndarray], begin: int, end: int) -> Any:
    pieces = [array[begin:end] for array in arrays]
    return pieces[0] if len(pieces) == 1 else pieces
