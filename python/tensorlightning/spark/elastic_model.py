"""tl.spark.ElasticModel: what ElasticTrainer.fit() returns, as a Model of pyspark.ml."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.ml import Model
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 (as everybody calls it)

from tensorlightning.spark import frames, keras_models, shipping
from tensorlightning.spark.keras_models import Array, SavedModel, Signature
from tensorlightning.spark.params import ModelParams
from tensorlightning.spark.persistence import Payload, Persistent
from tensorlightning.spark.predicting import Sent, predict

Record = Mapping[str, Any]


class ElasticModel(ModelParams, Persistent, Model):
    """A trained model that predicts in Spark.

    >>> fitted.transform(df)  # the same rows and columns, and one more: prediction

    The prediction is an array of floats, or a double if the model says one number. What was saved
    may hold code of the user's (build_model): load only what you trust.

    Attributes:
      model: the Keras model, with what all workers have learned.
      history: as of Keras's fit(): of each metric one number per epoch, the mean of all workers,
        weighted by what they have trained on.
      workers: a record of each partition: rank, steps, samples, bytes, loss, its own history, ...
      record: the run's record.
    """

    def __init__(
        self,
        saved: SavedModel,
        workers: Sequence[Record] = (),
        record: Record | None = None,
        model: Any = None,
    ):
        super().__init__()
        self.workers, self.record = list(workers), dict(record or {})
        self._saved, self._model = saved, model
        self._sent: tuple[SparkContext, Sent] | None = None

    @property
    def history(self) -> dict[str, list[float]]:
        return mean_history(self.workers)

    @property
    def model(self) -> Any:
        if self._model is None:
            self._model = keras_models.load(self._saved, to_train=True)
        return self._model

    def _transform(self, dataset: DataFrame) -> DataFrame:
        context = frames.context_of(dataset)
        shipping.ship(context)
        name, features = self.getOrDefault("prediction"), self.names_of_features()
        frames.check_columns(dataset, features)
        if name in dataset.columns:
            raise ValueError(f"there is a column {name!r} already: prediction= names another")
        outputs = self._saved.signature.outputs
        if len(outputs) != 1:
            raise ValueError(f"the model has {len(outputs)} outputs, and transform() is for one")
        inputs = frames.inputs_of(dataset, features, self._saved.signature.inputs)
        frame, columns = frames.with_arrays(dataset, inputs)
        task = functools.partial(
            predict,
            sent=self._send(context),
            columns=columns,
            names=[*dataset.columns, name],
            rows_at_once=self.getOrDefault("batch_size"),
        )
        said = T.StructField(name, _type_of(outputs[0]))
        return frame.mapInArrow(task, T.StructType([*dataset.schema.fields, said]))

    def _send(self, context: SparkContext) -> Sent:
        """Once, however often transform() is called."""
        if self._sent is None or self._sent[0] is not context:
            digest = hashlib.sha256(self._saved.content).hexdigest()
            self._sent = context, Sent(digest, context.broadcast(self._saved))
        return self._sent[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_model": None, "_sent": None}

    def copy(self, extra: Any = None) -> "ElasticModel":
        # Python copies by __getstate__, but a copy in the driver may use the same broadcast.
        copied = super().copy(extra)
        copied._model, copied._sent = self._model, self._sent
        return copied

    def to_payload(self) -> Payload:
        saved = self._saved
        about = {
            "file": saved.file,
            "library": saved.library,
            "signature": dataclasses.asdict(saved.signature),
            "workers": self.workers,
            "record": self.record,
        }
        return {
            "model": saved.content,
            "build_model": saved.build_model,
            "about": json.dumps(about).encode(),
        }

    @classmethod
    def from_payload(cls, payload: Payload) -> "ElasticModel":
        about = json.loads(payload["about"])
        arrays = {
            way: tuple(Array(tuple(array["shape"]), array["dtype"]) for array in given)
            for way, given in about["signature"].items()
        }
        saved = SavedModel(
            about["file"],
            payload["model"],
            payload["build_model"],
            Signature(**arrays),
            about["library"],
        )
        return cls(saved, about["workers"], about["record"])


def mean_history(workers: Sequence[Record]) -> dict[str, list[float]]:
    """Of all workers. One that was lost and began again has told of its last epochs only."""
    names = list(dict.fromkeys(name for worker in workers for name in worker["history"]))
    return {name: _means(name, [w for w in workers if w["history"].get(name)]) for name in names}


def _means(name: str, workers: Sequence[Record]) -> list[float]:
    epochs = max(len(worker["history"][name]) for worker in workers)
    means = []
    for before_end in range(epochs, 0, -1):
        told = [w for w in workers if len(w["history"][name]) >= before_end]
        weights = [max(w["samples"], 1) for w in told]
        values = [w["history"][name][-before_end] for w in told]
        total = sum(value * weight for value, weight in zip(values, weights, strict=True))
        means.append(total / sum(weights))
    return means


def _type_of(output: Array) -> T.DataType:
    """As predicting.as_arrow() has it."""
    if all(size == 1 for size in output.shape):
        return T.DoubleType()
    kind: T.DataType = T.FloatType()
    for _ in output.shape:
        kind = T.ArrayType(kind)
    return kind
