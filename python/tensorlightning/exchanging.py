"""tl.exchanger: for training loops without fit()."""

import contextlib
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tensorlightning import _ops
from tensorlightning.averaging import Averaging
from tensorlightning.options import Options
from tensorlightning.worker import next_job


class Exchanger:
    """Averages variables with those of other workers; see tl.exchanger."""

    def __init__(self, variables: Iterable[Any], *, final: str = "centre", **settings: Any):
        if final not in ("centre", "own"):
            raise ValueError(f"final={final!r}: final must be one of centre, own")
        options = Options.make(**settings)
        if options.averages_gradients:
            raise ValueError(
                f"policy={options.policy!r}: an exchanger averages variables; for gradients use "
                "tl.DistributedOptimizer"
            )
        chosen = list(variables)
        self._training = Averaging(lambda: chosen, options, next_job(), final == "own", report=1)
        if not self._training.begin():
            raise ValueError("tl.exchanger() was given no variables: build the model first")
        self._worker = self._training.worker
        self._last_statistics: dict[str, Any] = {}

    def __call__(self, steps: int = 1) -> tf.Tensor:
        """After each step of training, or after several. Whether an exchange was started.

        Never waits for the network. In a tf.function it becomes part of the graph.
        """
        worker = self._worker
        if tf.inside_function():
            return _ops.tl_step(worker.number, tf.cast(steps, tf.int64), worker.handles)
        if not worker.joined:
            raise RuntimeError("this exchanger has finished: make another one")
        return worker.step(int(steps))

    def pull(self) -> None:
        """The centre, as it is now, into the variables. Training can go on."""
        self._worker.pull()

    def centre(self) -> contextlib.AbstractContextManager[None]:
        """A context in which the variables hold the centre, for saving or evaluating it."""
        return self._training.centre()

    def statistics(self) -> dict[str, Any]:
        """As tl.statistics()."""
        if self._worker.joined:
            self._last_statistics = self._training.statistics()
        return dict(self._last_statistics)

    def finish(self) -> None:
        """A last exchange, and waits for the others' last; the variables then hold the centre."""
        if self._worker.joined:
            self.statistics()  # What it says afterwards.
            self._training.finish()

    def leave(self) -> None:
        """Leaves at once; the variables stay as they are."""
        self._training.abandon()

    def __enter__(self) -> "Exchanger":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.finish()
        else:
            self.leave()


def exchanger(variables: Iterable[Any], **settings: Any) -> Exchanger:
    """Averages variables with those of other workers, in a training loop of your own.

    >>> exchange = tl.exchanger(model.weights)     # joins: the variables now hold the centre
    >>> for x, y in dataset:
    ...     train_step(x, y)
    ...     exchange()                             # or inside the tf.function
    >>> exchange.finish()                          # the variables hold the final centre

    or ``with tl.exchanger(model.weights) as exchange: ...``, which finishes at its end.

    `settings` are those of tl.Elastic, but for checkpoint; policies: elastic, local, dense. Integer
    variables are left out. Give model.weights rather than model.trainable_variables if the model
    has others that matter, such as BatchNormalization's means.
    """
    return Exchanger(variables, **settings)
