"""tl.spark.ElasticTrainer: trains a Keras model from a DataFrame; an Estimator of pyspark.ml."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.ml import Estimator
from pyspark.sql import DataFrame

from tensorlightning import _library
from tensorlightning.spark import frames, keras_models, keras_worker
from tensorlightning.spark.columns import Column, from_arrow
from tensorlightning.spark.elastic_model import ElasticModel
from tensorlightning.spark.job import Job
from tensorlightning.spark.params import TrainerParams
from tensorlightning.spark.partitions import first_row, train_all
from tensorlightning.spark.persistence import Payload, Persistent
from tensorlightning.spark.task import Ticket

__all__ = ["ElasticModel", "ElasticTrainer"]


class ElasticTrainer(TrainerParams, Persistent, Estimator):
    """Trains a Keras model on all executors at once.

    >>> trainer = tl.spark.ElasticTrainer(build_model, workers=8, epochs=3, features="image")
    >>> fitted = trainer.fit(df)
    >>> fitted.model.save("model.keras")
    >>> fitted.transform(test).select("prediction")

    Each partition is a worker's: it trains on its own rows and exchanges what it has learned with
    the others, through a centre. fit() returns an ElasticModel that holds the centre. A task that
    Spark starts again goes on from there.

    Columns are numbers, arrays of numbers, vectors, or (the fastest) binary: uint8, float32 or
    float64, as many as an input of the model takes.

    Args:
      build_model: a function without arguments that returns a compiled Keras model. It runs in the
        driver and in each worker, and must make all it needs itself.
      workers: partitions to train on; data in another number of them is repartitioned. None: as
        many as the data has.
      epochs: how often each worker trains on its rows; they are kept on its local disk meanwhile.
      batch_size: rows in a step of a worker.
      features: the column that the model takes, or a list of them, one for each of its inputs.
      label: the column that it is to learn. None: the model needs none.
      prediction: the column that the fitted model adds.
      shuffle: rows in another order in each epoch. `seed` makes it the same order in each run.
      aggregator: "driver", "task" (a slot of the cluster more), or the address of one that runs.
      secret_file: for one that runs: a file of the driver, with its secret.
      port: of the aggregator; the next one is the driver's, too. 0: any that are free.
      snapshots: a folder of the driver for the aggregator's snapshots. fit(df, resume=folder) goes
        on from there, also with another number of workers.
      progress: live lines in the driver.
      record: a file of the driver, for the run's record as JSON. The fitted model has it, too.
      hang_seconds: a worker that gives no sign of life for so long (stopped, or stuck) is killed.
      stall_seconds: the same for one that lives and makes no step, though it has rows.
      **settings: those of tl.Elastic: policy, period, density, reply_density, bits, beta, when,
        change, patience.
    """

    IN_PAYLOAD = ("build_model",)

    def __init__(
        self,
        build_model: Callable[[], Any] | None = None,
        *,
        workers: int | None = None,
        epochs: int = 1,
        batch_size: int = 32,
        features: str | Sequence[str] = "features",
        label: str | None = "label",
        prediction: str = "prediction",
        shuffle: bool = True,
        seed: int = 0,
        aggregator: str = "driver",
        secret_file: str | None = None,
        port: int = 0,
        snapshots: str | None = None,
        progress: bool = True,
        record: str | None = None,
        hang_seconds: float = 30.0,
        stall_seconds: float = 600.0,
        **settings: Any,
    ):
        super().__init__()
        self.setParams(
            build_model=build_model,
            workers=workers,
            epochs=epochs,
            batch_size=batch_size,
            features=features,
            label=label,
            prediction=prediction,
            shuffle=shuffle,
            seed=seed,
            aggregator=aggregator,
            secret_file=secret_file,
            port=port,
            snapshots=snapshots,
            progress=progress,
            record=record,
            hang_seconds=hang_seconds,
            stall_seconds=stall_seconds,
            **settings,
        )

    def fit(self, dataset: DataFrame, params: Any = None, *, resume: str | None = None) -> Any:
        """Trains; returns an ElasticModel. `params` as for every Estimator.

        `resume`: a folder with the snapshots of a training that has ended too early.
        """
        if resume is None:
            return super().fit(dataset, params)
        if isinstance(params, list | tuple):
            raise ValueError("resume= goes on with one training, and params= asks for several")
        return (self.copy(params) if params else self)._fit(dataset, resume)

    def _fit(self, dataset: DataFrame, resume: str | None = None) -> ElasticModel:
        _library.path()  # Here, and not in every task, if it is not there.
        context = frames.context_of(dataset)
        features, labels = self.names_of_features(), self.names_of_labels()
        frames.check_columns(dataset, [*features, *labels])
        build_model = self._build_model()
        pickled = keras_models.pickled(build_model)
        model = keras_models.build(build_model)
        about = keras_models.signature(model)
        inputs = frames.inputs_of(dataset, features, about and about.inputs)
        chosen, columns = frames.chosen(dataset, [*inputs, *map(Column, labels)])
        if about is None:
            about = keras_models.show_rows(model, first_row(chosen, columns)[: len(inputs)])
        with self._job(context, resume) as job:
            train = functools.partial(
                train_partition,
                ticket=job.ticket,
                build_model=build_model,
                columns=columns,
                options=self._options(len(features)),
            )
            records = train_all(job, chosen, self.getOrDefault("workers"), train)
            keras_worker.fetch(job, model)
            summary = job.summary()
        saved = keras_models.save(model, pickled, about)
        return self._copyValues(ElasticModel(saved, records, summary, model))

    def _build_model(self) -> Callable[[], Any]:
        build_model = self.getOrDefault("build_model")
        if build_model is None:
            raise ValueError("there is no model to train: ElasticTrainer(build_model, ...)")
        keras_worker.check_function(build_model)
        return build_model

    def _job(self, context: SparkContext, resume: str | None) -> Job:
        names = ("workers", "epochs", "aggregator", "secret_file", "port", "snapshots")
        names += ("progress", "record", "hang_seconds", "stall_seconds")
        given = {name: self.getOrDefault(name) for name in names}
        return Job(context, settings=self.settings(), resume=resume, **given)

    def _options(self, inputs: int) -> dict[str, Any]:
        names = ("batch_size", "epochs", "shuffle", "seed")
        return {name: self.getOrDefault(name) for name in names} | {"inputs": inputs}

    def to_payload(self) -> Payload:
        return {"build_model": keras_models.pickled(self.getOrDefault("build_model"))}

    @classmethod
    def from_payload(cls, payload: Payload) -> "ElasticTrainer":
        return cls(keras_models.unpickled(payload["build_model"]))


def train_partition(
    batches: Iterator[pa.RecordBatch],
    *,
    ticket: Ticket,
    build_model: Callable[[], Any],
    columns: Sequence[Column],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """In a task: trains on its rows, and returns its record."""
    return keras_worker.train(ticket, build_model, from_arrow(batches, columns), **options)
