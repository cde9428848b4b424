"""A worker's membership in a job, inside of a Spark task.

    with task.worker(ticket) as member:
        if member.record is None:               # else an earlier attempt has finished
            ... train from member.start on, calling member.progress(...) after each step ...
            record = member.done(loss=0.3)

Inside, TL_* variables tell the native library who this worker is. A thread of its own tells the
driver once a second how far it has come, and is told when this attempt is to end.
"""

import contextlib
import json
import os
import pkgutil
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorlightning.report import statistics_by_name
from tensorlightning.spark import lines

if TYPE_CHECKING:
    from tensorlightning.spark.feeding import Feed

BEAT_SECONDS = 1.0
# For a driver that does not answer; it may be busy, or the network between may be cut.
DRIVER_SECONDS = 120.0
_ASK_SECONDS = 10.0

RECORD_SCHEMA = (
    "rank int, partition int, attempt bigint, host string, steps bigint, samples bigint, "
    "bytes bigint, loss double, history string"
)
RECORD_FIELDS = tuple(field.split()[0] for field in RECORD_SCHEMA.split(", "))


class EndedError(RuntimeError):
    """This attempt is to end: another has taken its place, or the driver has ended the job."""


@dataclass(frozen=True)
class Ticket:
    """What a task needs to know; the values travel as a Spark broadcast, and are shown nowhere."""

    broadcast: Any

    @property
    def value(self) -> dict[str, Any]:
        return self.broadcast.value


def identity() -> tuple[int, int]:
    """(partition, attempt): the attempt is of the whole application, and never repeated."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this is for Spark's tasks, and not for the driver")
    return context.partitionId(), context.taskAttemptId()


def empty_record() -> dict[str, Any]:
    """Of a partition without rows: nobody was there to train."""
    partition, attempt = identity()
    record = dict.fromkeys(RECORD_FIELDS) | {"partition": partition, "attempt": attempt}
    return record | {"host": socket.gethostname(), "steps": 0, "samples": 0, "bytes": 0}


@contextlib.contextmanager
def worker(ticket: Ticket, extra: Mapping[str, str] | None = None) -> Iterator["Membership"]:
    """Takes part in the job. An exception inside is told to the driver, and goes on.

    `extra`: more variables for the environment.
    """
    member = Membership(ticket.value, *identity())
    try:
        with environment({**member.variables(), **(extra or {})}):
            # Python workers are reused: what the one before has trained is none of this one's.
            if (module := sys.modules.get("tensorlightning.worker")) is not None:
                module.count_anew()
            yield member
    except EndedError:
        raise  # The driver knows.
    except BaseException as error:
        member.fail(error)
        raise
    finally:
        member.close()


@contextlib.contextmanager
def wrong_rows_told(ticket: Ticket) -> Iterator[None]:
    """For what comes before worker(): rows that are wrong are so in every attempt."""
    try:
        yield
    except (TypeError, ValueError) as error:
        told, (partition, attempt) = ticket.value, identity()
        with contextlib.suppress(lines.LineError):
            line = lines.connect(*told["watch"], told["secret"], _ASK_SECONDS)
            line.ask({"partition": partition, "attempt": attempt, **_failure(error)})
            line.close()
        raise


def _failure(error: BaseException) -> dict[str, Any]:
    # What is wrong with the rows, or with what the user said, is so in every attempt.
    # So are, in TensorFlow's words, a model that is not that of the snapshots, and a label outside
    # of the classes.
    refused = type(error).__name__ in ("PermissionDeniedError", "InvalidArgumentError")
    fatal = isinstance(error, ValueError | TypeError) or refused
    text = f"{type(error).__name__}: {_sentences(str(error))}"[:4000]
    return {"do": "failed", "error": text, "fatal": fatal}


def _sentences(text: str) -> str:
    """Of an error in a graph TensorFlow shows where the graph was made before it says what is; of
    one in an op, which op it was.
    """
    text = re.sub(r"^\{\{function_node [^}]*\}\} | \[Op:\w+\] name: ?$", "", text)
    if not text.startswith("Graph execution error"):
        return text
    stack = (" ", "\t", "Detected at", "Graph execution error", "Stack trace")
    said = [line for line in text.splitlines() if line.strip() and not line.startswith(stack)]
    return " ".join(said) or text


class Membership:
    """One attempt of one worker."""

    def __init__(self, told: Mapping[str, Any], partition: int, attempt: int):
        self.partition, self.attempt = partition, attempt
        self._told = told
        self._ended = ""
        self._closed = threading.Event()
        self._latest: dict[str, Any] = {"steps": 0, "samples": 0, "epochs": 0.0, "report": {}}
        self._moved = time.monotonic()
        self._is_waiting: Callable[[], bool] = lambda: False
        self._statistics: Callable[[], Mapping[str, Any]] = dict
        self._rate = (0, time.monotonic())
        self._line, answer = self._enter()
        self.rank, self.size = int(answer["rank"]), int(answer["size"])
        self.start, self.trained = float(answer["start"]), int(answer["trained"])
        self.record: dict[str, Any] | None = answer["record"]
        self._answer = answer
        self._asking = threading.Lock()
        self._guardian = _start_guardian(float(told["hang_seconds"]))
        # Apart: a driver that does not answer is no reason to be killed.
        self._threads = [
            threading.Thread(target=target, name="tensorlightning", daemon=True)
            for target in (self._beat, self._live)
        ]
        for thread in self._threads:
            thread.start()

    def progress(
        self,
        *,
        steps: int,
        samples: int,
        epochs: float,
        loss: float | None = None,
        statistics: Callable[[], Mapping[str, Any]] | Mapping[str, Any] = dict,
    ) -> None:
        """How far this attempt has come: steps and samples of its own, epochs of the partition.

        To be called after every step, or several: costs next to nothing. `statistics` are those
        of tl.statistics(). Raises EndedError when this attempt is to end.
        """
        self._moved = time.monotonic()
        self._statistics = statistics if callable(statistics) else lambda: statistics
        report = {} if loss is None else {"loss": float(loss)}
        self._latest = {"steps": steps, "samples": samples, "epochs": epochs, "report": report}
        self.check()

    def check(self) -> None:
        """Raises EndedError when this attempt is to end."""
        if self._ended:
            raise EndedError(self._ended)

    def follow(self) -> None:
        """For functions that know nothing of this: steps are those of tl.statistics()."""

        def statistics() -> Mapping[str, Any]:
            module = sys.modules.get("tensorlightning.worker")
            found = module.statistics() if module else {}
            self._latest = {**self._latest, "steps": int(found.get("steps", 0))}
            return found

        self._statistics = statistics

    def waiting(self, on: Callable[[], bool]) -> None:
        """`on` says whether rows are waited for: then it is no stall that no step is made."""
        self._is_waiting = on

    def done(
        self,
        feed: "Feed | None" = None,
        *,
        loss: float | None = None,
        history: Mapping[str, Any] | None = None,
        inputs: int = 0,
    ) -> dict[str, Any]:
        """The record of this partition: what all its attempts have done. Nothing comes after it.

        `inputs`: so many of the feed's arrays are the model's.
        """
        seen = (feed.first() or ())[:inputs] if feed is not None else ()
        record = dict.fromkeys(RECORD_FIELDS) | {
            "rank": self.rank,
            "partition": self.partition,
            "attempt": self.attempt,
            "host": socket.gethostname(),
            "loss": loss,
            "history": json.dumps(history or {}),
            # For an attempt that comes after this one, should its result be lost.
            "rows": feed.rows if feed is not None and feed.complete else None,
            # For a driver whose model has no weights before it sees data.
            "inputs": [[list(array.shape[1:]), array.dtype.name] for array in seen],
        }
        answer = self._ask({"do": "done", "record": record | self._snapshot()})
        self.check()
        return {name: answer["record"].get(name) for name in RECORD_FIELDS}

    def reopen(self) -> None:
        """What has finished is not to count: the next attempt begins anew."""
        self._ask({"do": "reopen"})

    def variables(self) -> dict[str, str]:
        """TL_* for this worker."""
        answer = self._answer
        return self._told["settings"] | {
            "TL_AGGREGATOR": answer["aggregator"],
            "TL_JOB": self._told["job"],
            "TL_RUN": self._told["run"],
            "TL_SECRET": self._told["secret"],
            "TL_RANK": str(self.rank),
            "TL_SIZE": str(self.size),
            "TL_LOCAL_RANK": str(answer["local_rank"]),
            "TL_LOCAL_SIZE": str(answer["local_size"]),
            # Later attempts have higher numbers: the aggregator fences the older ones off.
            "TL_ATTEMPT": str(self.attempt + 1),
        }

    def fail(self, error: BaseException) -> None:
        with contextlib.suppress(lines.LineError, EndedError):
            self._ask(_failure(error))

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join(_ASK_SECONDS)
        self._line.close()
        # The pipe's end would not do: a child that the user's code has forked holds it, too.
        self._guardian.kill()
        self._guardian.wait()
        self._guardian.stdin.close()

    # ---- The line to the driver. -----------------------------------------------------------------

    def _connect(self) -> lines.Line:
        host, port = self._told["watch"]
        return lines.connect(host, port, self._told["secret"], _ASK_SECONDS)

    def _say(self, line: lines.Line, message: dict[str, Any]) -> dict[str, Any]:
        return line.ask({"partition": self.partition, "attempt": self.attempt, **message})

    def _hello(self) -> tuple[lines.Line, dict[str, Any]]:
        line = self._connect()
        hello = {"do": "hello", "host": socket.gethostname(), "pid": os.getpid()}
        answer = self._say(line, hello)
        begin = time.monotonic()
        while "wait" in answer:
            waited = time.monotonic() - begin
            if waited > self._told["gather_seconds"]:
                why = (
                    f"waited {waited:.0f} s for all workers: {answer['wait']}. Has the cluster as "
                    "many free slots as there are to be workers (num_proc)?"
                )
                self._say(line, {"do": "failed", "error": why, "fatal": True})
                line.close()
                raise ValueError(why)
            time.sleep(BEAT_SECONDS / 2)
            answer = self._say(line, hello)
        return line, answer

    def _enter(self) -> tuple[lines.Line, dict[str, Any]]:
        """Stands by as long as it is told to; Spark ends a task that is not needed."""
        try:
            line, answer = self._hello()
        except lines.LineError as error:
            raise RuntimeError(
                f"the driver {error}: executors must reach it under spark.driver.host; a fixed "
                "`port` of the training helps with firewalls"
            ) from error
        if "stop" in answer:
            raise EndedError(answer["stop"])
        return line, answer

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Connects again if need be, for as long as the driver may be away."""
        until = time.monotonic() + DRIVER_SECONDS
        with self._asking:
            while True:
                try:
                    answer = self._say(self._line, message)
                    break
                except lines.LineError as error:
                    if time.monotonic() > until or self._closed.is_set():
                        self._ended = f"the driver {error}"
                        raise
                    time.sleep(BEAT_SECONDS / 2)
                    with contextlib.suppress(lines.LineError):
                        self._line.close()
                        self._line, hello = self._hello()
                        self._ended = hello.get("stop", "")
        if "stop" in answer:
            self._ended = answer["stop"]
        return answer

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            with contextlib.suppress(Exception):  # Whatever it is, the next beat may go through.
                self._ask({"do": "beat", **self._snapshot()})

    def _live(self) -> None:
        """Keeps the guardian quiet, as long as steps are made or there is a reason that not."""
        stall_seconds = float(self._told["stall_seconds"])
        while not self._closed.wait(BEAT_SECONDS / 2):
            if self._is_waiting() or self._ended:
                self._moved = time.monotonic()
            if time.monotonic() - self._moved < stall_seconds:
                with contextlib.suppress(OSError):
                    self._guardian.stdin.write(b".")

    def _snapshot(self) -> dict[str, Any]:
        statistics = statistics_by_name(self._statistics())
        latest = self._latest
        report = {**latest["report"], "step": latest["steps"], **statistics}
        steps, since = self._rate
        now = time.monotonic()
        if now - since > BEAT_SECONDS / 2:
            report["steps_per_s"] = round((latest["steps"] - steps) / (now - since), 2)
            self._rate = (latest["steps"], now)
        return {**latest, "report": report}


def _start_guardian(seconds: float) -> subprocess.Popen:
    # Not by its path: the package may be in a zip.
    text = pkgutil.get_data(__package__, "guardian.py").decode()
    command = [sys.executable, "-I", "-S", "-c", text, str(os.getpid()), str(seconds)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0)


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These TL_* variables and no others but those that say where programs are."""
    before = {name: value for name, value in os.environ.items() if name.startswith("TL_")}
    kept = {name for name in before if name in ("TL_TF_LIBRARY", "TL_CAFFE_DRIVER", "TL_PROGRAMS")}
    before |= {name: os.environ[name] for name in variables if name in os.environ}
    for name in before.keys() - kept:
        del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(before)
