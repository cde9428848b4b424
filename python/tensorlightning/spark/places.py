"""Who trains which partition, how far it has come, and who must end.

A partition keeps its rank, whichever attempt trains it. The newest attempt counts: an older one
that wakes up is told to end. One that comes while the older is well (Spark's speculation) stands
by, and takes over when that falls silent. What an attempt has reported is where the next goes on.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# After so long without a word an attempt may be replaced, and is shown as silent.
SILENCE_SECONDS = 10.0

Answer = dict[str, Any]


@dataclass
class Place:
    """A partition and its worker."""

    partition: int
    rank: int
    attempt: int
    host: str
    pid: int
    state: str = "running"  # running, lost, done, failed
    attempts: int = 1
    steps: int = 0
    samples: int = 0
    epochs: float = 0.0
    report: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] | None = None
    error: str = ""
    heard: float = 0.0
    connected: bool = True
    line: int = 0  # Which connection is its own; others of it may end late.
    # What earlier attempts had done when this one took over.
    steps_before: int = 0
    samples_before: int = 0
    bytes_before: int = 0

    @property
    def bytes(self) -> int:
        return self.bytes_before + sum(int(self.report.get(way, 0)) for way in ("sent", "received"))

    def is_well(self, now: float) -> bool:
        return self.state == "running" and self.connected and now - self.heard < SILENCE_SECONDS


class Places:
    """All of a job's. Not for several threads at once: the Watch has the lock."""

    def __init__(
        self,
        size: int | None = None,
        *,
        gather: bool = False,
        start: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`gather`: nobody gets a rank before all `size` are there, and hosts' ranks are together.

        `start`: epochs that a run before this one has trained.
        """
        self.size = size
        self.by_partition: dict[int, Place] = {}
        self._gather, self._start, self._clock = gather, start, clock
        self._waiting: dict[int, Answer] = {}

    def hello(self, partition: int, attempt: int, host: str, pid: int, line: int = 0) -> Answer:
        """What a task that wants to train is told: its rank, to wait, or to stop."""
        answer = self._hello(partition, attempt, host, pid)
        place = self.by_partition.get(partition)
        if place is not None and place.attempt == attempt:
            place.line = line
        return answer

    def _hello(self, partition: int, attempt: int, host: str, pid: int) -> Answer:
        place = self.by_partition.get(partition)
        if place is not None:
            return self._again(place, attempt, host, pid)
        if self._gather:
            self._waiting[partition] = {"attempt": attempt, "host": host, "pid": pid}
            if len(self._waiting) < (self.size or 1):
                return {"wait": f"{len(self._waiting)} of {self.size} workers have started"}
            self._seat_all()
            return self._welcome(self.by_partition[partition])
        return self._welcome(self._seat(partition, attempt, host, pid))

    def beat(self, partition: int, attempt: int, told: Answer) -> Answer:
        """A sign of life, with how far it has come."""
        place = self.by_partition.get(partition)
        if place is None or place.attempt != attempt:
            return {"stop": _superseded(partition, attempt, place)}
        place.heard, place.connected = self._clock(), True
        if place.state == "lost":
            place.state = "running"
        place.steps = place.steps_before + int(told.get("steps", 0))
        place.samples = place.samples_before + int(told.get("samples", 0))
        place.epochs = max(place.epochs, float(told.get("epochs", 0.0)))
        place.report = dict(told.get("report", {}))
        return {}

    def done(self, partition: int, attempt: int, record: dict[str, Any]) -> Answer:
        """Its last word. The record holds what all attempts have done."""
        answer = self.beat(partition, attempt, record)
        if "stop" in answer:
            return answer
        place = self.by_partition[partition]
        record = {name: value for name, value in record.items() if name != "report"}
        record |= {"steps": place.steps, "samples": place.samples, "bytes": place.bytes}
        place.state, place.record = "done", record
        return {"record": record}

    def failed(self, partition: int, attempt: int, error: str) -> Answer:
        place = self.by_partition.get(partition)
        if place is not None and place.attempt == attempt and place.state != "done":
            place.state, place.error = "failed", error
        return {}

    def reopen(self, partition: int, attempt: int) -> Answer:
        """What has finished does not count: the next attempt begins anew."""
        place = self.by_partition.get(partition)
        if place is not None and place.attempt == attempt:
            place.record, place.state, place.epochs = None, "running", self._start
            place.steps = place.samples = place.steps_before = place.samples_before = 0
        return {}

    def is_current(self, partition: int, attempt: int) -> bool:
        """Whether nobody else trains this partition."""
        place = self.by_partition.get(partition)
        return place is None or place.attempt == attempt

    def hung_up(self, partition: int, attempt: int, line: int = 0) -> None:
        """Its connection has ended: it has, or will be back."""
        place = self.by_partition.get(partition)
        if place is not None and place.attempt == attempt and place.line == line:
            place.connected = False
            if place.state == "running":
                place.state = "lost"
        if self._waiting.get(partition, {}).get("attempt") == attempt:
            del self._waiting[partition]

    def is_silent(self, place: Place) -> bool:
        return place.state == "running" and self._clock() - place.heard > SILENCE_SECONDS

    def are_connected(self) -> bool:
        """Whether anybody is there, or waits to be."""
        return bool(self._waiting) or any(
            place.connected and place.state == "running" for place in self.by_partition.values()
        )

    def gathering(self) -> str:
        """How many of those that are to begin together are there; empty: it has begun."""
        if not self._gather or self.by_partition:
            return ""
        return f"{len(self._waiting)} of {self.size} workers have started"

    def all(self) -> list[Place]:
        return sorted(self.by_partition.values(), key=lambda place: place.rank)

    def have_begun(self) -> bool:
        """Whether anybody has made a step."""
        return any(place.steps for place in self.by_partition.values())

    def epochs(self) -> float:
        """How far the whole job is: the mean of its partitions.

        If nobody knows how many there are to be, others may have to come: the least then.
        """
        if self.size is None:
            return min((place.epochs for place in self.by_partition.values()), default=self._start)
        count = max(self.size, len(self.by_partition))
        missing = (count - len(self.by_partition)) * self._start
        total = sum(place.epochs for place in self.by_partition.values()) + missing
        return total / count if count else self._start

    def _again(self, place: Place, attempt: int, host: str, pid: int) -> Answer:
        if attempt < place.attempt:
            return {"stop": _superseded(place.partition, attempt, place)}
        if attempt == place.attempt:
            place.heard, place.connected = self._clock(), True
            return self._welcome(place)
        if place.is_well(self._clock()):
            return {"wait": f"attempt {place.attempt} on {place.host} trains this partition"}
        place.attempt, place.host, place.pid = attempt, host, pid
        place.attempts += 1
        place.steps_before, place.samples_before = place.steps, place.samples
        place.bytes_before, place.report = place.bytes, {}
        place.heard, place.connected = self._clock(), True
        if place.state != "done":
            place.state, place.error = "running", ""
        return self._welcome(place)

    def _seat(self, partition: int, attempt: int, host: str, pid: int) -> Place:
        place = Place(partition, len(self.by_partition), attempt, host, pid, epochs=self._start)
        place.heard = self._clock()
        self.by_partition[partition] = place
        return place

    def _seat_all(self) -> None:
        """Ranks by host, then by partition: a host's workers are neighbours."""
        for partition, who in sorted(
            self._waiting.items(), key=lambda item: (item[1]["host"], item[0])
        ):
            self._seat(partition, **who)
        self._waiting.clear()

    def _welcome(self, place: Place) -> Answer:
        here = [other.rank for other in self.all() if other.host == place.host]
        return {
            "rank": place.rank,
            "size": max(self.size or 0, len(self.by_partition)),
            "local_rank": here.index(place.rank),
            "local_size": len(here),
            "start": place.epochs,
            "trained": place.samples,
            "record": place.record,
        }


def _superseded(partition: int, attempt: int, place: Place | None) -> str:
    by = f"attempt {place.attempt} on {place.host}" if place else "nobody"
    return f"attempt {attempt} of partition {partition} was replaced by {by}, and is to end"
