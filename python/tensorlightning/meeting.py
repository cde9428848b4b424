"""Where workers wait for each other at the end of a training.

A meeting is a job of its own, whose model has one number for each rank: it is zero until that rank
has come. It stays larger afterwards, so that nobody has to stay for others to be seen.
"""

import time
from collections.abc import Callable

import tensorflow as tf

from tensorlightning import environment
from tensorlightning.options import Options
from tensorlightning.worker import QUIET_SECONDS, SLICE_SECONDS, Worker


class Meeting:
    """One worker's part in it."""

    def __init__(self, job: str, options: Options, patience: float):
        self._numbers = tf.Variable(tf.zeros([environment.size()]), trainable=False)
        self._settings = {"policy": "dense", "when": "period", "patience": patience, "shown": False}
        self._job, self._options, self._patience = job, options, patience
        self._worker = Worker([self._numbers], options, job, **self._settings)
        self._entered = False

    def wait(self, expected: Callable[[], int], what: str) -> int:
        """How many have come: as many as expected, or fewer if they did not come in time."""
        self._worker.begin_to_join()
        begin = time.monotonic()
        told = False
        while True:
            come, wanted = self._look(), expected()
            waited = time.monotonic() - begin
            if come >= wanted or waited > self._patience:
                return come
            if waited > QUIET_SECONDS and not told:
                told = True
                environment.say(f"waits for other workers {what}: {come} of {wanted} are there")

    def close(self) -> None:
        self._worker.leave()

    def _look(self) -> int:
        """How many have come by now."""
        if self._entered:
            time.sleep(SLICE_SECONDS / 4)
            self._worker.pull()
        elif self._worker.has_joined():
            self._enter()
        else:
            return 0
        return int(tf.math.count_nonzero(self._numbers > 0))

    def _enter(self) -> None:
        self._hear_of_somebody()
        self._worker.pull()
        self._numbers[environment.rank()].assign(1.0)
        self._worker.exchange()
        self._worker.settle()
        self._entered = True

    def _hear_of_somebody(self) -> None:
        """Makes the worker one that is not alone.

        One that has never had company takes its own numbers for everybody's. Others may have come
        and gone before it heard of them; so it gets company for a moment, of a rank of its own.
        """
        company = Worker(
            [tf.Variable(self._numbers)],
            self._options,
            self._job,
            rank=environment.size() + environment.rank(),
            **self._settings,
        )
        company.join()
        try:
            self._worker.exchange()
            self._worker.settle()
        finally:
            company.leave()
