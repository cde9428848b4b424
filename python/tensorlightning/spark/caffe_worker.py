"""What a task does with Caffe's solver and its rows."""

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tensorlightning.caffe import CaffeError, Solver
from tensorlightning.spark import attempt, task
from tensorlightning.spark.caffe_nets import MemoryNet
from tensorlightning.spark.caffe_solvers import Steps
from tensorlightning.spark.columns import Column, from_arrow
from tensorlightning.spark.feeding import Feed

# Between two looks at what was sent and received.
STATISTICS_SECONDS = 0.5

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Plan:
    """What all tasks of a training are told. Both texts were tried in the driver."""

    solver: Steps
    net: MemoryNet
    epochs: int | None
    shuffle: bool
    seed: int
    weights: Any = None  # A broadcast of what to begin with.

    @property
    def rows(self) -> int:
        """Of an iteration."""
        return self.net.train.batch_size * self.solver.iter_size


def train(
    batches: Iterator[pa.RecordBatch], *, ticket: task.Ticket, columns: Sequence[Column], plan: Plan
) -> dict[str, Any]:
    """Trains on one partition; returns its record."""
    resumed = bool(ticket.value["start"])
    # A run that goes on in the middle of an epoch must know how long it is, before it begins.
    feed = Feed(
        from_arrow(batches, columns),
        plan.rows,
        shuffle=plan.shuffle,
        seed=attempt.seed_of(plan.seed),
        epochs=None if resumed else plan.epochs,
    )

    def work(member: task.Membership) -> dict[str, Any]:
        with Solver(plan.solver.text, plan.net.text, check=False) as solver:
            if plan.weights is not None:
                solver.load(plan.weights.value)
            return _Training(member, feed, plan, solver, resumed).run()

    return attempt.run(ticket, feed, work)


class _Training:
    """One attempt at one partition."""

    def __init__(
        self, member: task.Membership, feed: Feed, plan: Plan, solver: Solver, resumed: bool
    ):
        self._member, self._feed, self._plan, self._solver = member, feed, plan, solver
        self._steps = self._samples = 0
        self._epoch, self._skip, self._before = self._position(resumed)
        self._loss: float | None = None
        self._losses: dict[int, list[float]] = {}
        self._random = np.random.default_rng([plan.seed, member.partition, member.attempt])
        self._statistics: dict[str, Any] = {}
        self._looked = 0.0

    def run(self) -> dict[str, Any]:
        begun = self._before // self._plan.rows
        # Under a constant rate the number means nothing, but to Adam, which would take it for a
        # sign that it knows the gradients' sizes.
        self._solver.join(begun if self._plan.solver.rate_changes else 0)
        for epoch, rows, count in self._batches():
            if self._is_last(begun + self._steps):
                break
            self._step(epoch, rows, count)
        self._solver.finish()
        self._tell(at_end=True)
        means = [float(np.mean(losses)) for _, losses in sorted(self._losses.items())]
        loss = means[-1] if means else None
        return self._member.done(self._feed, loss=loss, history={"loss": means})

    def _is_last(self, iterations: int) -> bool:
        most = self._plan.solver.iterations
        return most is not None and iterations >= most

    def _position(self, resumed: bool) -> tuple[int, int, int]:
        """Where earlier attempts have ended: the epoch, rows of it, and rows in all."""
        start, trained, epochs = self._member.start, self._member.trained, self._plan.epochs
        if epochs is not None and start >= epochs:
            return epochs, 0, trained
        if start < 1.0 and not resumed:
            # Nobody knows yet how many rows there are, but how many were trained on.
            return 0, trained, trained
        rows = self._feed.gather()
        before = round(start * rows)
        return *divmod(before, rows), before

    def _batches(self) -> Iterator[tuple[int, Arrays, int]]:
        """(epoch, rows, how many of them are new). One that an epoch's end cuts short goes on with
        the next one's rows, as Caffe's own do; the very last is filled with rows from before.
        """
        size = self._plan.rows
        held: Arrays | None = None
        last: Arrays | None = None
        for number in self._epochs():
            skip = self._skip if number == self._epoch else 0
            for come in self._feed.epoch(number, skip):
                rows = come if held is None else _joined(held, come)
                held = None
                if len(rows[0]) >= size:
                    last = tuple(array[:size] for array in rows)
                    yield number, last, size
                    rows = tuple(array[size:] for array in rows)
                if len(rows[0]):
                    held = rows
        if held is not None:
            whole = held if last is None else _joined(last, held)
            yield number, tuple(_filled(array, size) for array in whole), len(held[0])

    def _epochs(self) -> Iterable[int]:
        end = self._plan.epochs
        return itertools.count(self._epoch) if end is None else range(self._epoch, end)

    def _step(self, epoch: int, rows: Arrays, count: int) -> None:
        examples = self._plan.net.train.transform(rows[0], self._random)
        try:
            self._solver.feed(examples, rows[1] if len(rows) > 1 else None)
        except CaffeError as error:
            # A ValueError: another attempt would only find the same rows.
            raise ValueError(f"rows of partition {self._member.partition}: {error}") from error
        self._loss = self._solver.step(1)
        self._losses.setdefault(epoch, []).append(self._loss)
        self._steps += 1
        self._samples += count
        self._tell()

    def _tell(self, at_end: bool = False) -> None:
        now = time.monotonic()
        if at_end or now - self._looked > STATISTICS_SECONDS:
            # Here, and not in the thread that tells it: a solver is for one thread at a time.
            self._statistics, self._looked = self._solver.statistics(), now
        epochs = 0.0
        if self._feed.complete:
            epochs = (self._before + self._samples) / self._feed.rows
        self._member.progress(
            steps=self._steps,
            samples=self._samples,
            epochs=min(epochs, self._plan.epochs or math.inf),
            loss=self._loss,
            statistics=self._statistics,
        )


def _filled(array: np.ndarray, size: int) -> np.ndarray:
    """The last rows; if there are too few, again and again."""
    return array[-size:] if len(array) >= size else np.resize(array, (size, *array.shape[1:]))


def _joined(first: Arrays, second: Arrays) -> Arrays:
    return tuple(np.concatenate(parts) for parts in zip(first, second, strict=True))
