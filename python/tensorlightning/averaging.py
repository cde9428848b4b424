"""A training whose weights are averaged: the policies elastic, local and dense."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tensorlightning import environment
from tensorlightning.meeting import Meeting
from tensorlightning.options import Options
from tensorlightning.worker import Worker

# Slower workers are waited for this long at the end, as long as they give signs of life.
END_SECONDS = 600.0
_STEPS_BETWEEN_LOOKS = 8


class Averaging:
    """One worker's part in it, from the first weights to the last."""

    def __init__(
        self,
        weights: Callable[[], Sequence[Any]],
        options: Options,
        job: str,
        own: bool,
        **settings: Any,
    ):
        """`own`: the weights stay this worker's own at the end. `settings` are the Worker's."""
        self._weights = weights
        self._options, self._job, self._own = options, job, own
        self._settings = settings
        self._calls = 0
        self.worker: Worker | None = None

    def begin(self, built: bool = True) -> bool:
        """Joins, if there are weights yet."""
        weights = self._weights() if built else []
        if not weights:
            return False
        self.worker = Worker(weights, self._options, self._job, **self._settings)
        self.worker.join()
        return True

    def step(self, steps: int) -> None:
        """After so many steps of training."""
        # Variables that were made by the model's first step: the centre replaces them.
        if self.worker is None and not self.begin():
            return
        self.worker.step(steps)
        self._calls += 1
        if self._calls % _STEPS_BETWEEN_LOOKS == 0:
            self.worker.live()

    def statistics(self) -> dict[str, Any]:
        return self.worker.statistics() if self.worker and self.worker.joined else {}

    def centre(self) -> contextlib.AbstractContextManager[None]:
        """The model holds the centre inside."""
        if self.worker is None or not self.worker.joined:
            return contextlib.nullcontext()
        return self.worker.centre()

    def finish(self) -> None:
        """The last exchange; the model then holds the centre, the same in every worker."""
        if self.worker is None:
            environment.say("has trained alone: the model had no weights, or there was no step")
            return
        if environment.size() == 1 or environment.ends_apart():
            self.worker.finish(self._own)
            return
        self._exchange_now()
        meeting = Meeting(environment.beside(self._job, "end"), self._options, self._end_seconds)
        with contextlib.ExitStack() as ending:
            ending.callback(meeting.close)
            # First this one: who still waits then sees fewer workers, not fewer that have come.
            ending.callback(self.worker.leave)
            come = self._wait_for_others(meeting)
            if not self._own:
                self._take_centre(come)

    def abandon(self) -> None:
        """Leaves a training that ended in the middle."""
        if self.worker is not None:
            self.worker.leave()

    @property
    def _end_seconds(self) -> float:
        return max(END_SECONDS, self._options.patience)

    def _exchange_now(self) -> None:
        self.worker.settle()
        self.worker.exchange()
        self.worker.settle()

    def _wait_for_others(self, meeting: Meeting) -> int:
        begin = time.monotonic()

        def expected() -> int:
            live = self.worker.live()
            waited = time.monotonic() - begin
            # Who was never seen may still be starting; who was seen and is gone has died.
            if self.worker.most_live < environment.size() and waited < self._options.patience:
                return environment.size()
            return min(live, environment.size())

        try:
            return meeting.wait(expected, "to finish")
        except tf.errors.OpError as error:
            environment.say(f"could not wait for the others to finish: {error.message}")
            return 1

    def _take_centre(self, come: int) -> None:
        """The final centre into the model; what one worker alone has learned is in its own."""
        if self.worker.live() > 1 or self.worker.most_live > 1:
            self.worker.pull()
        elif come > 1:
            # The others began when this one had ended. It takes itself for the only one, and its
            # own model for the centre; who joins anew does not.
            self.worker.leave()
            self.worker.join()
