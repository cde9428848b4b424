"""The mean of all workers' gradients, for optimizers: the policies gradient and gradient-async.

The aggregator's centre is a sum of gradients here. That all workers begin with the same weights,
and that one that is restarted gets rank 0's present ones, the native library sees to.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tensorlightning import _ops, environment
from tensorlightning.meeting import Meeting
from tensorlightning.options import Options
from tensorlightning.worker import NOBODY, Worker, slot


class GradientAverager:
    """One worker's part in it; `number` is what graphs know of it."""

    def __init__(
        self, options: Options, job: str, momentum: float = 0.0, counts_steps: bool = False
    ):
        """`momentum` is applied before pruning, by the native library, and not by the optimizer.

        `counts_steps`: every mean is a step, and nobody else calls step().
        """
        self._options, self._job = options, job
        self.momentum, self._counts_steps = momentum, counts_steps
        self.number = slot()
        self.worker: Worker | None = None

    def joined(self) -> tf.Tensor:
        """For graphs, too."""
        return tf.not_equal(self.number, NOBODY)

    def join(self, trainable: Sequence[Any]) -> None:
        """Waits until all workers are there; the variables then hold rank 0's weights."""
        if environment.size() == 1:
            raise ValueError(
                f"policy={self._options.policy!r} waits for all workers: TL_SIZE must say how many "
                "there are (tlrun sets it)"
            )
        settings = {"momentum": self.momentum} if self.momentum else {}
        # Who counts the steps tells the launcher of them; otherwise fit()'s callback does.
        settings["report"] = int(self._counts_steps)
        self.worker = Worker(trainable, self._options, self._job, number=self.number, **settings)
        self.worker.join()

    def mean(self, gradients: Sequence[Any], key: Callable[[Any], Any], of: Sequence[Any]) -> list:
        """Everybody's mean of these gradients of the variables `of`, which `key` tells apart."""
        known = {key(variable): gradient for gradient, variable in zip(gradients, of, strict=True)}
        sent = [
            # Sparse ones, of embeddings, as dense ones.
            tf.convert_to_tensor(known[key(variable)])
            if key(variable) in known
            else tf.zeros(variable.shape, variable.dtype)
            for variable in self.worker.variables
        ]
        received = _ops.tl_average_gradients(self.number, sent)
        means = dict(zip(map(key, self.worker.variables), received, strict=True))
        return [means[key(variable)] for variable in of]

    def after_update(self) -> None:
        """In graphs, too: when the variables have been updated with the mean."""
        if self._counts_steps:
            _ops.tl_step(self.number, tf.constant(1, tf.int64), self.worker.handles)

    def step(self, steps: int) -> None:
        """After so many steps: what is kept of rank 0's weights for latecomers follows them."""
        if self.worker is not None and self.worker.joined:
            self.worker.step(steps)

    def statistics(self) -> dict[str, Any]:
        return self.worker.statistics() if self.worker and self.worker.joined else {}

    def leave(self) -> None:
        """Who leaves completes the others' round. No harm if it has left already."""
        if self.worker is not None:
            self.worker.leave()

    def finish(self, weights: Sequence[Any], own: bool) -> None:
        """Leaves; all workers then have rank 0's weights, unless `own`."""
        if self.worker is None:
            return
        self.leave()
        meeting = Meeting(
            environment.beside(self._job, "end"), self._options, self._options.patience
        )
        settings = {"policy": "dense", "when": "period", "shown": False}
        last = Worker(weights, self._options, environment.beside(self._job, "last"), **settings)
        with contextlib.ExitStack() as ending:
            ending.callback(meeting.close)
            # Rank 0 stays until the others have its weights.
            ending.callback(last.leave)
            try:
                if not own:
                    last.join()
                come = meeting.wait(environment.size, "to finish")
                if come < environment.size():
                    environment.say(f"ends without all others: {come} of {environment.size()} came")
            except tf.errors.OpError as error:
                environment.say(f"keeps its own weights at the end: {error.message}")
