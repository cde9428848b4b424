"""One worker's membership in a job: a thin layer over the ops.

    worker = Worker(variables, options, job)
    worker.join()                     # the variables now hold the centre
    for batch in data: ...; worker.step(1)
    worker.finish()

Whatever waits does so in short slices, so that Ctrl-C is obeyed.
"""

import contextlib
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tensorlightning import _ops, environment, variables
from tensorlightning.options import Options

SLICE_SECONDS = 0.2
QUIET_SECONDS = 4.0
NOBODY = -1

_numbers = itertools.count(1)
_last: "Worker | None" = None
_last_statistics: dict[str, Any] = {}


def next_job() -> str:
    """A job's name for one training: the second fit of a process is another job than the first.

    Otherwise it would be given the first one's weights, or refused if its model is another. Workers
    run the same program, so all count alike.
    """
    number = next(_numbers)
    return environment.job() if number == 1 else environment.beside(environment.job(), str(number))


def count_anew() -> None:
    """This process begins another run: its next training is the job itself, and not beside it."""
    global _numbers, _last, _last_statistics
    _numbers = itertools.count(1)
    _last, _last_statistics = None, {}


def slot() -> tf.Variable:
    """Holds a worker's number for graphs, which outlive workers. NOBODY: it has left."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.Variable(NOBODY, dtype=tf.int64, trainable=False, name="tensorlightning_worker")


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Of an op's error that comes together with Ctrl-C TensorFlow makes a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        if "KeyboardInterrupt" in str(error):
            raise KeyboardInterrupt from error
        raise


@functools.cache
def _number_of_steps(steps: int) -> tf.Tensor:
    with tf.init_scope():
        return tf.constant(steps, tf.int64)


class Worker:
    """Takes part in a job with these variables."""

    def __init__(
        self,
        model_variables: Sequence[Any],
        options: Options,
        job: str,
        *,
        number: tf.Variable | None = None,
        shown: bool = True,
        **settings: Any,
    ):
        """`settings` are for the op tl_join, and win over `options`.

        `shown`: tl.statistics() is about this one.
        """
        self.variables = variables.floats(model_variables)
        if not self.variables:
            raise ValueError(
                "there is nothing to exchange: of the variables given, none has floats "
                "(has the model been built?)"
            )
        self.job = job
        # What graphs know of it. The tensor is for calls from Python, which are many.
        self.number = slot() if number is None else number
        self._number: tf.Tensor | None = None
        self.handles = variables.handles(self.variables)
        self.most_live = 1
        self._shown = shown
        self._patience = float(settings.get("patience", options.patience))
        self._settings = options.native(job=job, **settings)

    @property
    def joined(self) -> bool:
        return self._number is not None

    def begin_to_join(self) -> None:
        """Returns at once; has_joined() tells when it has."""
        self._number = _ops.tl_join(
            options=self._settings, resources=self.handles, names=variables.names(self.variables)
        )
        self.number.assign(self._number)

    def has_joined(self) -> bool:
        """Waits for a moment at most."""
        return bool(_ops.tl_joined(self._number, self.handles, timeout_s=SLICE_SECONDS))

    def join(self) -> None:
        """Takes part; the variables then hold the centre."""
        global _last
        self.begin_to_join()
        try:
            self._until(self.has_joined, self._patience, "the job's weights")
        except BaseException:
            self.leave()
            raise
        if self._shown:
            _last = self

    def step(self, steps: int = 1) -> tf.Tensor:
        """After so many steps of training. Never waits. Whether an exchange was started."""
        return _ops.tl_step(self._number, _number_of_steps(steps), self.handles)

    def exchange(self) -> None:
        """Starts an exchange now."""
        _ops.tl_exchange(self._number, self.handles)

    def settle(self) -> None:
        """Until nothing is under way; what has come back is in the variables."""
        self._until(self._idle, self._patience, "the end of an exchange")
        self.step(0)

    def pull(self) -> None:
        """The centre into the variables."""
        with _interruptible():
            _ops.tl_pull(self._number, self.handles)

    @contextlib.contextmanager
    def centre(self) -> Iterator[None]:
        """The variables hold the centre inside, and afterwards what they held before."""
        self.settle()
        own = [tf.identity(variables.native(variable)) for variable in self.variables]
        self.pull()
        try:
            yield
        finally:
            for variable, value in zip(self.variables, own, strict=True):
                variables.native(variable).assign(value)

    def finish(self, own: bool = False) -> None:
        """A last exchange; the variables then hold the centre, unless `own`; and leaves."""
        try:
            with _interruptible():
                _ops.tl_finish(self._number, self.handles, own=own)
        finally:
            self.leave()

    def leave(self) -> None:
        """Leaves at once. No harm if it has left already."""
        if not self.joined:
            return
        with contextlib.suppress(tf.errors.OpError):
            self._remember()
            _ops.tl_leave(self._number)
        self._forget()

    def live(self) -> int:
        """How many take part now, as last heard."""
        live = int(_ops.tl_size(self._number))
        self.most_live = max(self.most_live, live)
        return live

    def statistics(self) -> dict[str, Any]:
        return json.loads(_ops.tl_statistics(self._number).numpy())

    def _forget(self) -> None:
        self._number = None
        self.number.assign(NOBODY)

    def _idle(self) -> bool:
        return bool(_ops.tl_wait(self._number, timeout_s=SLICE_SECONDS))

    def _remember(self) -> None:
        """What tl.statistics() says when the worker has left."""
        global _last, _last_statistics
        if _last is self:
            _last_statistics, _last = self.statistics(), None

    def _until(self, done: Callable[[], bool], patience: float, what: str) -> None:
        begin = time.monotonic()
        told = False
        while not done():
            waited = time.monotonic() - begin
            # The op itself gives up first, and can say more.
            if waited > patience + 2:
                raise tf.errors.DeadlineExceededError(
                    None, None, f"waited {waited:.0f} s for {what} of job '{self.job}'"
                )
            if waited > QUIET_SECONDS and not told:
                told = True
                where = self.statistics().get("aggregator")
                environment.say(f"waits for {what} (job '{self.job}', aggregator {where})")


def statistics() -> dict[str, Any]:
    """What this worker has sent and received: of the training under way, or else of the last one.

    >>> tl.statistics()["bytes_sent"]

    Among others: live (workers that take part now), policy, steps, exchanges, bytes_sent,
    bytes_received, dense_bytes (what unpruned exchanges would have moved), staleness. Empty before
    the first training.
    """
    return _last.statistics() if _last is not None and _last.joined else dict(_last_statistics)
