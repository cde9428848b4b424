"""What a task does with a Keras model and its rows, and how the driver gets the result."""

import contextlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tensorlightning.spark import attempt, task
from tensorlightning.spark.feeding import Feed
from tensorlightning.spark.job import Job, TrainingError

Arrays = tuple[np.ndarray, ...]


def train(
    ticket: task.Ticket,
    build_model: Callable[[], Any],
    arrays: Iterator[Arrays],
    *,
    batch_size: int,
    epochs: int,
    shuffle: bool = True,
    seed: int = 0,
    inputs: int = 1,
    fit_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains on one partition; returns its record.

    The first `inputs` of the arrays are the model's inputs, the others its labels. `fit_options`
    are for Keras's fit(); "callbacks" among them is a function that returns a list.
    """
    resumed = bool(ticket.value["start"])
    # A run that goes on in the middle of an epoch must know how long it is, before it begins.
    hint = None if resumed else epochs
    feed = Feed(arrays, batch_size, shuffle=shuffle, seed=attempt.seed_of(seed), epochs=hint)

    def work(member: task.Membership) -> dict[str, Any]:
        training = _Training(member, feed, batch_size, epochs, inputs, resumed)
        return training.run(build_model, dict(fit_options or {}))

    return attempt.run(ticket, feed, work)


def check_function(build_model: Any) -> None:
    """A model itself can't be made once more, in each worker."""
    if hasattr(build_model, "get_weights") or not callable(build_model):
        raise TypeError(
            f"build_model is {type(build_model).__name__}: give the function that makes and "
            "compiles the model, without calling it"
        )


def fetch(job: Job, model: Any) -> None:
    """The centre, what all have learned, into the driver's model."""
    import tensorflow as tf

    from tensorlightning.options import Options
    from tensorlightning.worker import Worker

    with job.reader():
        reader = Worker(model.weights, Options.make(), job.name, shown=False)
        try:
            reader.join()
        except tf.errors.PermissionDeniedError as error:
            raise TrainingError(
                "what was trained does not fit the driver's model. build_model must make a new "
                f"model, and the same one, whenever it is called: {error.message}"
            ) from error
        reader.leave()


class _Training:
    """One attempt at one partition."""

    def __init__(
        self,
        member: task.Membership,
        feed: Feed,
        batch_size: int,
        epochs: int,
        inputs: int,
        resumed: bool,
    ):
        self._member, self._feed = member, feed
        self._batch_size, self._epochs, self._inputs = batch_size, epochs, inputs
        self._first_epoch = min(int(member.start), epochs)
        self._epoch = self._first_epoch
        self._steps = self._samples = 0
        # Of the epoch under way: rows and batches that were trained, rows that were left out.
        self._in_epoch = self._batches = self._skipped = 0
        # The batches of an epoch in whose middle it begins.
        self._begun: Iterator[Arrays] | None = None
        self._left_out = 0
        self._error: Exception | None = None
        self._resumed = resumed

    def run(self, build_model: Callable[[], Any], fit_options: dict[str, Any]) -> dict[str, Any]:
        _use_threads_of_the_task()
        # Imported here: a task that waits for its rows, or stands by, needs no TensorFlow.
        import tensorflow as tf

        from tensorlightning import environment
        from tensorlightning.averaging import Averaging
        from tensorlightning.options import Options

        model = build_model()
        # What all have learned is the driver's to fetch: nobody would look at it here.
        self._averaging = Averaging(
            lambda: model.weights, Options.make(), environment.job(), own=True
        )
        self._averaging.begin(built=bool(model.built))
        _go_on_with_rate(model.optimizer, self._rows_before() // self._batch_size)
        callbacks = [self._callback(), *fit_options.pop("callbacks", list)()]
        history: dict[str, list[float]] = {}
        try:
            for first, last in self._stretches():
                fitted = self._fit(model, tf, first, last, callbacks, fit_options)
                for name, values in fitted.items():
                    history.setdefault(name, []).extend(values)
            self._averaging.finish()
        except tf.errors.OpError:
            # TensorFlow knows only the text of what went wrong with the rows.
            if self._error is not None:
                raise self._error from None
            self._member.check()
            raise
        finally:
            self._averaging.abandon()
        loss = history.get("loss", [None])[-1]
        self._tell(loss, float(self._epochs))
        return self._member.done(
            self._feed, loss=_finite(loss), history=_plain(history), inputs=self._inputs
        )

    def _stretches(self) -> list[tuple[int, int]]:
        """Epochs that one fit() may train: Keras takes all to be as long as its first one."""
        first, skip = self._first_epoch, self._skip()
        self._left_out = skip
        if first == self._epochs or skip == 0:
            return [(first, self._epochs)]
        # Whether anything is left of the epoch only its rows can tell.
        begun = self._feed.epoch(first, skip)
        if (batch := next(begun, None)) is None:
            return [(first + 1, self._epochs)]
        self._begun = itertools.chain([batch], begun)
        return [(first, first + 1), (first + 1, self._epochs)]

    def _fit(
        self, model: Any, tf: Any, first: int, last: int, callbacks: list[Any], options: Any
    ) -> dict[str, list[float]]:
        if first >= last:
            return {}
        with warnings.catch_warnings():
            # That an epoch ends where its rows do is what is wanted.
            warnings.filterwarnings("ignore", message="Your input ran out of data")
            return model.fit(
                self._dataset(tf),
                initial_epoch=first,
                epochs=last,
                verbose=0,
                shuffle=False,
                callbacks=callbacks,
                **options,
            ).history

    def _callback(self) -> Any:
        import keras

        training = self

        class Exchanges(keras.callbacks.Callback):
            """After each step: exchanges, and tells the driver."""

            # tf_keras asks whether it has to call back at all.
            def _implements_train_batch_hooks(self) -> bool:
                return True

            def _implements_test_batch_hooks(self) -> bool:
                return False

            def _implements_predict_batch_hooks(self) -> bool:
                return False

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                training._begin_epoch(epoch)

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                training._after(batch + 1, (logs or {}).get("loss"))

        return Exchanges()

    def _dataset(self, tf: Any) -> Any:
        """All epochs: Keras asks for an iterator at the beginning of each."""
        first = self._feed.first()
        specs = tuple(tf.TensorSpec((None, *array.shape[1:]), array.dtype) for array in first)

        def batches() -> Iterator[Any]:
            begun, self._begun = self._begun, None
            try:
                for batch in begun or self._feed.epoch(self._epoch):
                    yield self._structured(batch)
            except Exception as error:
                self._error = error
                raise

        signature = self._structured(specs)
        return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)

    def _structured(self, parts: tuple[Any, ...]) -> Any:
        """(x, y) as Keras wants it; several inputs are a tuple of their own."""
        inputs, labels = parts[: self._inputs], parts[self._inputs :]
        x = inputs[0] if len(inputs) == 1 else inputs
        if not labels:
            return (x,)
        return x, labels[0] if len(labels) == 1 else labels

    def _skip(self) -> int:
        """Rows of the first epoch here that were trained before."""
        # In the first epoch nobody knows how many there are, but how many were trained.
        if self._epoch == 0 and not self._resumed:
            return self._member.trained
        share = self._member.start - self._first_epoch
        return round(share * self._feed.gather()) if share > 0 else 0

    def _rows_before(self) -> int:
        """That earlier attempts, or the run that goes on here, have trained on."""
        if self._resumed:
            return round(self._member.start * self._feed.gather())
        return self._member.trained

    def _begin_epoch(self, epoch: int) -> None:
        self._epoch, self._in_epoch, self._batches = epoch, 0, 0
        self._skipped = self._left_out if self._begun else 0

    def _after(self, batches: int, loss: Any) -> None:
        """After so many batches of the epoch."""
        rows = batches * self._batch_size
        if self._feed.complete:
            rows = min(rows, self._feed.rows - self._skipped)
        steps = batches - self._batches
        self._averaging.step(steps)
        self._steps += steps
        self._samples += rows - self._in_epoch
        self._in_epoch, self._batches = rows, batches
        done = self._skipped + rows
        share = done / self._feed.rows if self._feed.complete else 0.0
        self._tell(loss, self._epoch + share)

    def _tell(self, loss: Any, epochs: float) -> None:
        import tensorlightning as tl

        self._member.progress(
            steps=self._steps,
            samples=self._samples,
            epochs=epochs,
            loss=_finite(loss),
            statistics=tl.statistics,
        )


def _use_threads_of_the_task() -> None:
    """TensorFlow would take all cores of the host, in each of its tasks."""
    import tensorflow as tf
    from pyspark import TaskContext

    cores = max(1, TaskContext.get().cpus())
    with contextlib.suppress(RuntimeError):  # A reused worker has them already.
        tf.config.threading.set_intra_op_parallelism_threads(cores)
        tf.config.threading.set_inter_op_parallelism_threads(cores)


def _go_on_with_rate(optimizer: Any, steps: int) -> None:
    """A learning rate that changes with the steps goes on after so many.

    Under a constant one the number means nothing, but to Adam, which would take it for a sign that
    it knows the gradients' sizes.
    """
    if steps and isinstance(optimizer.get_config().get("learning_rate"), Mapping):
        optimizer.iterations.assign(steps)


def _finite(loss: Any) -> float | None:
    return None if loss is None or not math.isfinite(float(loss)) else float(loss)


def _plain(history: Mapping[str, Any]) -> dict[str, list[float]]:
    return {name: [float(value) for value in values] for name, values in history.items()}
