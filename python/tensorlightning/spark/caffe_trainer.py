"""tl.spark.CaffeTrainer: Caffe's solver and net, as their files are, trained from a DataFrame."""

import functools
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 (as everybody calls it)

from tensorlightning.caffe import CaffeError, Solver, checking, prototxt, read_caffemodel
from tensorlightning.caffe.models import Floats
from tensorlightning.spark import caffe_worker, checks, frames, job, partitions
from tensorlightning.spark.caffe_model import CaffeModel, Predictor
from tensorlightning.spark.caffe_nets import MemoryNet, Net, caffe_shape
from tensorlightning.spark.caffe_solvers import SolverFile
from tensorlightning.spark.caffe_worker import Plan
from tensorlightning.spark.columns import Column

__all__ = ["CaffeModel", "CaffeTrainer"]

File = str | os.PathLike[str]


class CaffeTrainer:
    """Trains a net of Caffe's on all executors at once.

    >>> trainer = tl.spark.CaffeTrainer("solver.prototxt", "net.prototxt", workers=4, epochs=3)
    >>> fitted = trainer.fit(df)
    >>> Path("lenet.caffemodel").write_bytes(fitted.caffemodel)
    >>> fitted.transform(test).select("prediction")

    The files stay as they are. Layers that read data (Data, HDF5Data, ImageData, ...) get it from
    the DataFrame's rows instead, with what their transform_param says done to them. Each partition
    is a worker's: it trains on its own rows and exchanges what it has learned with the others,
    through a centre. fit() returns a CaffeModel that holds the centre. A task that Spark starts
    again goes on from there. Caffe must be installed on the driver and on all executors.

    Args:
      solver: the solver's file, or its text. What it says about tests, displays and snapshots is
        not used; a tensorlightning_param may be there, or not.
      net: the net's file, or its text. None: the one that the solver names.
      workers: partitions to train on; data in another number of them is repartitioned. None: as
        many as the data has.
      epochs: how often each worker trains on its rows; they are kept on its local disk meanwhile.
        None: each worker trains for the solver's max_iter iterations.
      batch_size: instead of what the net's data layer says.
      features: the column of the net's data.
      label: the column of its labels. Not used if the net has none.
      prediction: the column that the fitted model adds.
      shape: of a row: (channels, height, width). None: as the net says (MemoryData, Input), else as
        the rows are; a flat row is all channels.
      blob: what the fitted model predicts. None: the input of the Accuracy or loss layer.
      weights: a .caffemodel to begin with.
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
      **settings: those of tensorlightning_param, which they win over: policy, period, density,
        reply_density, bits, beta, when, change, patience.
    """

    def __init__(
        self,
        solver: File,
        net: File | None = None,
        *,
        workers: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        features: str = "features",
        label: str = "label",
        prediction: str = "prediction",
        shape: Sequence[int] | None = None,
        blob: str | None = None,
        weights: File | None = None,
        shuffle: bool = True,
        seed: int = 0,
        aggregator: str = "driver",
        secret_file: str | None = None,
        port: int = 0,
        snapshots: File | None = None,
        progress: bool = True,
        record: File | None = None,
        hang_seconds: float = 30.0,
        stall_seconds: float = 600.0,
        **settings: Any,
    ):
        for name, value in (("workers", workers), ("epochs", epochs), ("batch_size", batch_size)):
            if value is not None:
                checks.whole(name, value)
        checks.whole("seed", seed, 0)
        self._solver, self._net = _read(solver, net)
        self._steps = self._solver.for_tasks(epochs)
        self._settings = job.checked(**(self._solver.settings | settings))
        self._weights = [weights] if weights is not None else self._solver.weights
        self._shape = None if shape is None else caffe_shape(tuple(shape))
        self._batch_size, self._blob = batch_size, blob
        self._features, self._label, self._prediction = features, label, prediction
        self._order = {"epochs": epochs, "shuffle": shuffle, "seed": seed}
        self._workers = workers
        self._job = {
            "workers": workers,
            "epochs": epochs or 0,
            "aggregator": aggregator,
            "secret_file": secret_file,
            "port": port,
            "snapshots": snapshots,
            "progress": progress,
            "record": record,
            "hang_seconds": checks.hang_seconds(hang_seconds),
            "stall_seconds": checks.stall_seconds(stall_seconds),
        }

    def fit(self, dataset: DataFrame, *, resume: File | None = None) -> CaffeModel:
        """Trains; returns a CaffeModel.

        `resume`: a folder with the snapshots of a training that has ended too early.
        """
        context = frames.context_of(dataset)
        frames.check_columns(dataset, [self._features])
        net = self._net.from_memory(self._row_shape(dataset), self._batch_size)
        columns = [Column(self._features, net.row_shape)]
        if net.labelled:
            frames.check_columns(dataset, [self._label])
            columns.append(Column(self._label, ()))
        weights = self._try(net)
        with job.Job(context, settings=self._settings, resume=resume, **self._job) as running:
            plan = Plan(self._steps, net, **self._order, weights=_sent(context, weights))
            chosen, columns = frames.chosen(dataset, columns)
            train = functools.partial(
                caffe_worker.train, ticket=running.ticket, columns=columns, plan=plan
            )
            records = partitions.train_all(running, chosen, self._workers, train)
            caffemodel = self._fetch(running, net)
            summary = running.summary()
        return CaffeModel(
            Predictor(net.text, caffemodel, net.test.transform),
            row_shape=net.row_shape,
            blob=self._blob or net.blob,
            features=self._features,
            prediction=self._prediction,
            workers=records,
            record=summary,
        )

    def _row_shape(self, dataset: DataFrame) -> tuple[int, ...]:
        if told := self._shape or self._net.shape:
            return told
        if isinstance(dataset.schema[self._features].dataType, T.BinaryType):
            raise ValueError(
                f"column {self._features!r} is binary: shape=(channels, height, width) must say "
                "what its bytes are"
            )
        (row,) = partitions.first_row(*frames.chosen(dataset, [Column(self._features)]))
        return caffe_shape(row.shape[1:])

    def _try(self, net: MemoryNet) -> dict[str, list[Floats]]:
        """What to begin with; a ValueError if Caffe, or a net's blob, is not as it must be.

        Caffe ends its process when a text is wrong: tasks should not be the first to try.
        """
        for test in (False, True):
            try:
                checking.check(self._steps.text, net.text, test=test)
            except CaffeError as error:
                shape = " x ".join(map(str, net.row_shape))
                raise ValueError(f"Caffe, with rows of {shape}: {error}") from error
        begin: dict[str, list[Floats]] = {}
        with Solver(self._steps.text, net.text, check=False) as solver:
            for file in self._weights:
                begin |= read_caffemodel(file)
            solver.load(begin)
            zeros = np.zeros((1, *net.test.transform.shape_after(net.row_shape)), np.float32)
            try:
                solver.predict(zeros, self._blob or net.blob)
            except KeyError as error:
                raise ValueError(f"blob={self._blob!r}: {error.args[0]} in phase TEST") from None
        return begin

    def _fetch(self, running: job.Job, net: MemoryNet) -> bytes:
        """The centre, what all have learned."""
        with (
            running.reader(),
            Solver(self._steps.text, net.text, check=False) as solver,
            tempfile.TemporaryDirectory() as folder,
        ):
            solver.join()
            file = Path(folder) / "model.caffemodel"
            solver.snapshot(file)
            return file.read_bytes()


def _sent(context: SparkContext, weights: Mapping[str, Any]) -> Any:
    return context.broadcast(weights) if weights else None


def _read(solver: File, net: File | None) -> tuple[SolverFile, Net]:
    text, name = _text(solver, "solver")
    read = SolverFile(text, name)
    if net is not None:
        return read, Net(*_text(net, "net"))
    named = read.net
    if named is None:
        raise ValueError(f"{name} names no net: net= does")
    if not isinstance(named, str):
        return read, Net(prototxt.text(named), name)
    # Caffe looks where it is started; a file knows what is beside it.
    beside = Path(name).parent / named
    return read, Net(*_text(named if Path(named).exists() else beside, "net"))


def _text(given: File, what: str) -> tuple[str, str]:
    """The content, and what to call it. No file's name has a new line or brackets."""
    if isinstance(given, str) and any(sign in given for sign in "\n{"):
        return given, what
    return Path(given).read_text(), os.fspath(given)
