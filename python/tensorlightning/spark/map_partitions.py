"""rdd.mapPartitions(tl.spark.trainer(build_model)): the bare wrapper."""

import atexit
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tensorlightning.spark import checks, keras_models, keras_worker
from tensorlightning.spark.columns import Column, from_rows
from tensorlightning.spark.job import Job, checked
from tensorlightning.spark.task import Ticket


class Trainer:
    """What trainer() returns: a function for mapPartitions, and in the driver the way to the model.

    The aggregator runs from its making until close() or the end of the program.
    """

    def __init__(self, job: Job, build_model: Callable[[], Any], **how: Any):
        self._job: Job | None = job
        self._ticket: Ticket = job.ticket
        self._build_model, self._how = build_model, how
        job.__enter__()
        atexit.register(self.close)

    def __call__(self, rows: Iterator[Any]) -> Iterator[dict[str, Any]]:
        """In a task: trains on a partition's rows, and yields its one record."""
        how = dict(self._how)
        columns = how.pop("columns")
        arrays = from_rows(iter(rows), columns)
        yield keras_worker.train(self._ticket, self._build_model, arrays, **how)

    def __getstate__(self) -> dict[str, Any]:
        # The job stays in the driver.
        return {**self.__dict__, "_job": None}

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close(failed=kind is not None)

    def model(self) -> Any:
        """In the driver, after the action: a model with what all workers have learned."""
        job = self._here()
        if not job.has_weights():
            raise RuntimeError("nothing has been trained yet: first an action, such as collect()")
        model = self._build_model()
        if keras_models.signature(model) is None:
            keras_models.show_rows(model, self._zeros(job))
        keras_worker.fetch(job, model)
        return model

    def record(self) -> dict[str, Any]:
        """In the driver: how it goes, or went."""
        return self._here().summary()

    def close(self, failed: bool = False) -> None:
        """In the driver: ends the aggregator. No harm if it has ended."""
        if self._job is not None:
            atexit.unregister(self.close)
            job, self._job = self._job, None
            job.close(failed)

    def _zeros(self, job: Job) -> list[np.ndarray]:
        """Rows like those that a worker has seen: the model has no weights before it sees any."""
        for place in job.places.all():
            if inputs := (place.record or {}).get("inputs"):
                return [np.zeros([1, *shape], dtype) for shape, dtype in inputs]
        raise RuntimeError(
            "the model has no Input, and no worker has ended yet that could tell what rows are like"
        )

    def _here(self) -> Job:
        if self._job is None:
            raise RuntimeError("this trainer is closed, or is not in the driver")
        return self._job


def trainer(
    build_model: Callable[[], Any],
    *,
    workers: int | None = None,
    epochs: int = 1,
    batch_size: int = 32,
    features: str | Sequence[str] = "features",
    label: str | None = "label",
    shuffle: bool = True,
    seed: int = 0,
    aggregator: str = "driver",
    secret_file: str | None = None,
    port: int = 0,
    snapshots: str | None = None,
    resume: str | None = None,
    progress: bool = False,
    record: str | None = None,
    hang_seconds: float = 30.0,
    stall_seconds: float = 600.0,
    **settings: Any,
) -> Trainer:
    """A function for ``rdd.mapPartitions``: each partition is one worker.

    >>> with tl.spark.trainer(build_model, batch_size=64) as train:
    ...     records = rdd.mapPartitions(train).collect()
    ...     model = train.model()

    Rows are trained on as they stream in. They are tuples (features..., label), or have these
    names: Row, dictionaries, named tuples. Each partition yields one record, a dictionary: rank,
    partition, attempt, host, steps, samples, bytes, loss, history (as JSON). A task that Spark
    starts again goes on where the lost one was, from what all have learned. An empty partition
    yields a record without a rank.

    Args:
      build_model: a function without arguments that returns a compiled Keras model.
      workers: how many partitions there are, if it is known: tl.size() in the workers, and for
        resume= how far all of them were.
      epochs: how often each worker trains on its rows; they are kept on its local disk meanwhile.
      batch_size: rows in a step of a worker.
      features, label: names of what a row holds; `features` may be several. label=None: there is
        none.
      shuffle: rows in another order in each epoch. `seed` makes it the same order in each run.
      aggregator: "driver", "task" (a slot of the cluster more), or the address of one that runs.
      secret_file: for one that runs: a file of the driver, with its secret.
      port: of the aggregator; the next one is the driver's, too. 0: any that are free.
      snapshots: a folder of the driver for the aggregator's snapshots. Without it, they are in
        the folder for temporary files, and removed if all goes well.
      resume: such a folder, of a run that has ended early: this one goes on from there, with any
        number of workers.
      progress: live lines in the driver.
      record: a file of the driver, for the run's record as JSON.
      hang_seconds: a worker that gives no sign of life for so long (stopped, or stuck) is killed.
      stall_seconds: the same for one that lives and makes no step, though it has rows.
      **settings: those of tl.Elastic: policy, period, density, reply_density, bits, beta, when,
        change, patience.
    """
    from pyspark import SparkContext

    keras_worker.check_function(build_model)
    for name, value, least in (
        ("epochs", epochs, 1),
        ("batch_size", batch_size, 1),
        ("seed", seed, 0),
    ):
        checks.whole(name, value, least)
    names = [features] if isinstance(features, str) else list(features)
    job = Job(
        SparkContext.getOrCreate(),
        workers=workers,
        settings=checked(**settings),
        epochs=epochs,
        aggregator=aggregator,
        secret_file=secret_file,
        port=port,
        snapshots=snapshots,
        resume=resume,
        progress=progress,
        record=record,
        hang_seconds=checks.hang_seconds(hang_seconds),
        stall_seconds=checks.stall_seconds(stall_seconds),
    )
    return Trainer(
        job,
        build_model,
        columns=[Column(name) for name in [*names, *([label] if label else [])]],
        inputs=len(names),
        batch_size=batch_size,
        epochs=epochs,
        shuffle=shuffle,
        seed=seed,
    )
