"""tl.Elastic: the one line that makes a Keras model distributed."""

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tensorlightning import environment, interrupts, trainings
from tensorlightning.averaging import Averaging
from tensorlightning.checkpoint import Checkpoint
from tensorlightning.gradients import Gradients
from tensorlightning.options import Options
from tensorlightning.report import Reporter
from tensorlightning.worker import next_job


class Elastic(keras.callbacks.Callback):
    """Trains a model together with other workers.

    >>> model.fit(tl.shard(x), tl.shard(y), callbacks=[tl.Elastic()])

    started with ``tlrun -np 4 python train.py``. All workers begin with rank 0's weights; after
    fit() every worker's model holds the centre, what all have learned. Without a launcher it is
    plain training.

    Each setting that is left out comes from the environment (``TL_PERIOD`` for `period`, ...) or
    from the defaults.

    Args:
      period: steps between two exchanges.
      beta: how strongly workers and centre pull each other, in (0, 1].
      density: share of the entries that a worker sends in an exchange.
      reply_density: the same for what it gets back.
      bits: per value sent: 2, 4, 8, 16 or 32.
      policy: "elastic" (elastic averaging), "local" (workers restart from what they know of the
        centre), "dense" (elastic, nothing pruned), "gradient" (everybody's mean gradient in each
        step, pruned), "gradient-async" (the same without waiting). The last two hook the model's
        optimizer while fit() runs, and turn XLA off.
      when: "period", or "adaptive": when the model has changed enough.
      change: for "adaptive": what enough is, as a share of the model's norm.
      aggregator: "host:port" or "unix:/path"; tlrun says it.
      secret_file: a file with the job's secret; tlrun says it.
      patience: seconds to wait for the aggregator and for other workers, before it is an error.
      final: "centre", or "own": what the model holds after fit().
      checkpoint: a path, as in "model.keras", to which rank 0 saves the centre after each epoch and
        at the end. Load it and fit() again to go on, with any number of workers. (Workers that
        save with ModelCheckpoint would each save their own, to the same file: see tl.Checkpoint.)
    """

    def __init__(
        self,
        *,
        period: int | None = None,
        beta: float | None = None,
        density: float | None = None,
        reply_density: float | None = None,
        bits: int | None = None,
        policy: str | None = None,
        when: str | None = None,
        change: float | None = None,
        aggregator: str | None = None,
        secret_file: str | os.PathLike[str] | None = None,
        patience: float | None = None,
        final: str = "centre",
        checkpoint: str | os.PathLike[str] | None = None,
    ):
        super().__init__()
        if final not in ("centre", "own"):
            raise ValueError(f"final={final!r}: final must be one of centre, own")
        self._options = Options.make(
            period=period,
            beta=beta,
            density=density,
            reply_density=reply_density,
            bits=bits,
            policy=policy,
            when=when,
            change=change,
            aggregator=aggregator,
            secret_file=secret_file,
            patience=patience,
        )
        self._own = final == "own"
        self._checkpoint = None if checkpoint is None else Checkpoint(os.fspath(checkpoint))
        self._reporter: Reporter | None = None
        self._epoch, self._last_batch = 0, -1

    def centre(self) -> Any:
        """A context in which the model holds the centre, for saving or evaluating it meanwhile.

        >>> with elastic.centre():
        ...     model.save("centre.keras")
        """
        return trainings.centre_of(self.model)

    # tf_keras asks whether it has to call back at all.
    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        # A fit that ended with an exception has left it.
        trainings.abandon(self.model)
        _check_backend()
        kind = Gradients if self._options.averages_gradients else Averaging
        subject = self.model if kind is Gradients else _weights_of(self.model)
        training = kind(subject, self._options, next_job(), self._own)
        trainings.register(self.model, training)
        interrupts.watch()
        self._reporter = Reporter()
        if self._checkpoint is not None:
            self._checkpoint.set_model(self.model)
        try:
            # One that is not built yet joins after its first step, when all weights are there.
            training.begin(built=bool(self.model.built))
        except BaseException:
            trainings.abandon(self.model)
            raise

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._epoch, self._last_batch = epoch, -1

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        # With steps_per_execution, one call is for several steps.
        steps, self._last_batch = batch - self._last_batch, batch
        training = trainings.of(self.model)
        training.step(steps)
        self._reporter.step(steps, logs, training.statistics)
        interrupts.check()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self._checkpoint is not None:
            self._checkpoint.on_epoch_end(epoch, logs)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        training = trainings.of(self.model)
        statistics = training.statistics()
        if self._checkpoint is not None and self._own:
            # Afterwards the model does not hold the centre.
            self._checkpoint.save_now(self._epoch, logs)
        training.finish()
        trainings.forget(self.model)
        self._reporter.finish(logs, statistics)
        if self._checkpoint is not None and not self._own:
            self._checkpoint.save_now(self._epoch, logs)


def _weights_of(model: Any) -> Callable[[], Sequence[Any]]:
    reference = weakref.ref(model)

    def weights() -> Sequence[Any]:
        try:
            return reference().weights
        except ValueError:  # So says tf_keras that there are none yet.
            return []

    return weights


def _check_backend() -> None:
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            f"tl.Elastic works with Keras on TensorFlow, and this is Keras on "
            f"{keras.backend.backend()}: set KERAS_BACKEND=tensorflow"
        )
    if tf.distribute.has_strategy():
        raise RuntimeError(
            "tl.Elastic takes the place of tf.distribute: train without a strategy's scope, and "
            f"start more workers (this is rank {environment.rank()} of {environment.size()})"
        )
