"""tl.spark.CaffeModel: what CaffeTrainer.fit() returns."""

import dataclasses
import functools
import hashlib
import json
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 (as everybody calls it)

from tensorlightning.caffe import Solver
from tensorlightning.caffe.models import Floats, weights_in
from tensorlightning.spark import frames, shipping
from tensorlightning.spark.caffe_transform import Transform
from tensorlightning.spark.columns import Column, from_arrow
from tensorlightning.spark.elastic_model import mean_history
from tensorlightning.spark.predicting import as_arrow

# A net is part of a solver; this one never trains.
_NO_SOLVER = "base_lr: 0 lr_policy: 'fixed'"
_MODEL, _NET, _MEAN, _ABOUT = "model.caffemodel", "net.prototxt", "mean.npy", "model.json"
_FORMAT = 1
# By a Python worker, which Spark uses for many tasks.
_PREDICTORS_KEPT = 4


@dataclasses.dataclass(frozen=True)
class Predictor:
    """What tasks need to predict. The text was tried in the driver."""

    net: str
    caffemodel: bytes
    transform: Transform

    def solver(self, check: bool) -> Solver:
        solver = Solver(_NO_SOLVER, self.net, check=check)
        solver.load(weights_in(self.caffemodel))
        return solver

    def predict(self, solver: Solver, rows: np.ndarray, blob: str) -> Floats:
        values = solver.predict(self.transform(rows), blob)
        # Of (count, 10, 1, 1), say, ones are nothing to anybody.
        return values.reshape(len(values), *(size for size in values.shape[1:] if size != 1))


class CaffeModel:
    """A trained net that predicts in Spark.

    >>> fitted.transform(df)  # the same rows and columns, and one more: prediction

    The prediction is what a blob holds, an array of floats, or a double if it is one number.

    Attributes:
      caffemodel: the trained net, bytes, as `caffe test --weights` and all of Caffe's take it.
      weights: the same as {layer: [arrays]}.
      history: {"loss": one number per epoch}, the mean of all workers, weighted by what they have
        trained on.
      workers: a record of each partition: rank, steps, samples, bytes, loss, its own history, ...
      record: the run's record.
      net: the net's text; its data layers are MemoryData.
      blob: what predicts, unless transform() is told another.
    """

    def __init__(
        self,
        predictor: Predictor,
        *,
        row_shape: Sequence[int],
        blob: str,
        features: str,
        prediction: str,
        workers: Sequence[Mapping[str, Any]] = (),
        record: Mapping[str, Any] | None = None,
    ):
        self.blob, self.features, self.prediction = blob, features, prediction
        self.workers, self.record = list(workers), dict(record or {})
        self._predictor, self._row_shape = predictor, tuple(row_shape)

    @property
    def caffemodel(self) -> bytes:
        return self._predictor.caffemodel

    @property
    def net(self) -> str:
        return self._predictor.net

    @property
    def history(self) -> dict[str, list[float]]:
        return mean_history(self.workers)

    @functools.cached_property
    def weights(self) -> dict[str, list[Floats]]:
        return weights_in(self.caffemodel)

    def predict(self, rows: ArrayLike, *, blob: str | None = None) -> Floats:
        """In the driver. Rows are as they were in the DataFrame: not yet scaled, and so on."""
        array = np.asarray(rows)
        shaped = array.reshape(len(array), *self._row_shape)
        return self._predictor.predict(self._solver, shaped, blob or self.blob)

    def transform(
        self, dataset: DataFrame, *, blob: str | None = None, prediction: str | None = None
    ) -> DataFrame:
        """The DataFrame with another column: what `blob` holds in phase TEST for each row."""
        name, blob = prediction or self.prediction, blob or self.blob
        context = frames.context_of(dataset)
        shipping.ship(context)
        frames.check_columns(dataset, [self.features])
        if name in dataset.columns:
            raise ValueError(f"there is a column {name!r} already: prediction= names another")
        column = Column(self.features, self._row_shape)
        frame, columns = frames.with_arrays(dataset, [column])
        said = self.predict(np.zeros((1, *self._row_shape), np.float32), blob=blob)
        task = functools.partial(
            predict_partition,
            sent=_Sent(self._digest, context.broadcast(self._predictor)),
            blob=blob,
            columns=columns,
            kept=len(dataset.columns),
            name=name,
        )
        field = T.StructField(name, _type_of(said.shape[1:]))
        return frame.mapInArrow(task, T.StructType([*dataset.schema.fields, field]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Into a new folder of the driver."""
        folder = Path(path)
        folder.mkdir(parents=True)
        transform = self._predictor.transform
        (folder / _MODEL).write_bytes(self.caffemodel)
        (folder / _NET).write_text(self.net)
        if transform.mean is not None:
            np.save(folder / _MEAN, transform.mean)
        about = {
            "format": _FORMAT,
            "row_shape": self._row_shape,
            "transform": {"scale": transform.scale, "crop": transform.crop},
            **{name: getattr(self, name) for name in ("blob", "features", "prediction")},
            "workers": self.workers,
            "record": self.record,
        }
        # Last: a folder without it was not written to its end.
        (folder / _ABOUT).write_text(json.dumps(about, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "CaffeModel":
        """What save() has written."""
        folder = Path(path)
        try:
            about = json.loads((folder / _ABOUT).read_text())
            if about.pop("format") != _FORMAT:
                raise ValueError("it is of another version")
            mean = np.load(folder / _MEAN) if (folder / _MEAN).exists() else None
            transform = Transform(mean=mean, **about.pop("transform"))
            net, caffemodel = (folder / _NET).read_text(), (folder / _MODEL).read_bytes()
            return cls(Predictor(net, caffemodel, transform), **about)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"there is no CaffeModel in {folder}: {error}") from error

    @functools.cached_property
    def _solver(self) -> Solver:
        return self._predictor.solver(check=True)

    @functools.cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self.net.encode() + b"\0" + self.caffemodel).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_solver"}


@dataclasses.dataclass(frozen=True)
class _Sent:
    """A net on its way to tasks. Equal: the same net."""

    digest: str
    predictor: Broadcast = dataclasses.field(compare=False)


@functools.lru_cache(_PREDICTORS_KEPT)
def _solver_of(sent: _Sent) -> Solver:
    return sent.predictor.value.solver(check=False)


def predict_partition(
    batches: Iterator[pa.RecordBatch],
    *,
    sent: _Sent,
    blob: str,
    columns: Sequence[Column],
    kept: int,
    name: str,
) -> Iterator[pa.RecordBatch]:
    """In a task: the first `kept` columns as they are, and the prediction after them."""
    pending: deque[pa.RecordBatch] = deque()

    def noted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                pending.append(batch)
                yield batch

    for (rows,) in from_arrow(noted(), columns):
        batch = pending.popleft()
        said = sent.predictor.value.predict(_solver_of(sent), rows, blob)
        yield pa.RecordBatch.from_arrays(
            [*batch.columns[:kept], as_arrow(said)],
            names=[*batch.schema.names[:kept], name],
        )


def _type_of(shape: tuple[int, ...]) -> T.DataType:
    """As predicting.as_arrow() has it."""
    if not shape:
        return T.DoubleType()
    kind: T.DataType = T.FloatType()
    for _ in shape:
        kind = T.ArrayType(kind)
    return kind
