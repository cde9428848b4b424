"""Where workers wait for each other at the end of a training.

A meeting is a job of its own with a single number in it. Workers join it; who sees all of them
there makes the number larger than zero, which everybody then sees, also those who look later.
"""

import time
from collections.abc import Callable

import tensorflow as tf

from tensorlightning import environment
from tensorlightning.options import Options
from tensorlightning.worker import QUIET_SECONDS, SLICE_SECONDS, Worker


class Meeting:
    """One worker's part in it."""

    def __init__(self, job: str, options: Options):
        self._open = tf.Variable([0.0], trainable=False)
        self._worker = Worker([self._open], options, job, policy="dense", when="period")
        self._there = False

    def wait(self, expected: Callable[[], int], patience: float, what: str) -> bool:
        """Until so many workers are here. False if they did not come within `patience`."""
        self._worker.begin_to_join()
        begin = time.monotonic()
        told = False
        while True:
            here = self._look()
            wanted = expected()
            if wanted <= 1 or here >= wanted:
                self._tell_others()
                return True
            waited = time.monotonic() - begin
            if waited > patience:
                return False
            if waited > QUIET_SECONDS and not told:
                told = True
                environment.say(f"waits for other workers {what}: {here} of {wanted} are there")

    def close(self) -> None:
        self._worker.leave()

    def _look(self) -> int:
        """How many are here; all of them, if somebody has seen so before."""
        if not self._there:
            self._there = self._worker.has_joined()
            return int(self._there)
        time.sleep(SLICE_SECONDS / 4)
        self._worker.pull()
        return environment.size() if self._open.numpy()[0] > 0 else self._worker.live()

    def _tell_others(self) -> None:
        if self._there and self._open.numpy()[0] <= 0:
            self._open.assign([1.0])
            self._worker.exchange()
            self._worker.settle()
