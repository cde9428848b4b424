"""Where a job's aggregator lives: beside the driver, in a task of its own, or with somebody else.

"driver"      tl-aggregator is a child of the driver's process; should it die, it is started
              again, and goes on from its last snapshot
"task"        the same in a Spark task, which takes a slot of the cluster: for drivers far away
"host:7070"   one that runs already; the secret is in `secret_file`, or TL_SECRET
"""

import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorlightning.launch.addresses import with_port
from tensorlightning.launch.programs import find_program
from tensorlightning.spark import lines
from tensorlightning.spark.task import BEAT_SECONDS, DRIVER_SECONDS

DRIVER, TASK = "driver", "task"
REACH_SECONDS = 10.0
LEASE = "15s"
SNAPSHOT_EVERY = "10s"
START_SECONDS = 30.0
# For Spark to give the aggregator's task a slot.
SLOT_SECONDS = 120.0
END_SECONDS = 30.0
_LOG_END_BYTES = 2000


def check(aggregator: str, slots: int | None) -> None:
    """That there can be one. `slots`: of the whole cluster, if that is known."""
    if aggregator == TASK and slots is not None and slots < 2:
        raise ValueError("aggregator='task' takes a slot of its own, and there is only one here")
    if aggregator in (DRIVER, TASK) or aggregator.startswith("unix:"):
        return
    for address in aggregator.split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(
                f"aggregator={aggregator!r}: it is 'driver', 'task', or the address of one that "
                "runs, host:port"
            )
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
        except OSError as error:
            raise AggregatorError(f"aggregator={aggregator!r} can't be reached: {error}") from error


class AggregatorError(RuntimeError):
    """It does not start, or has been lost; the text says what it said."""


class Program:
    """tl-aggregator as a child: it ends, after a last snapshot, when this process does."""

    def __init__(self, job: str, secret: str, bind: str, port: int, snapshots: str | None):
        self._job, self._secret, self._bind, self.port = job, secret, bind, port
        self._snapshots = snapshots
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = self._start()

    def _start(self) -> subprocess.Popen:
        command = [
            str(find_program("tl-aggregator")),
            f"--listen={with_port(self._bind, self.port)}",
            f"--job={self._job}",
            f"--lease={LEASE}",
            "--log-level=warning",
            "--until-stdin-ends",
        ]
        if self._snapshots:
            command += [f"--snapshot-dir={self._snapshots}", f"--snapshot-every={SNAPSHOT_EVERY}"]
        # Another training in this process may change some meanwhile.
        names = [name for name in os.environ if not name.startswith("TL_")]
        environment = {n: v for n in names if (v := os.environ.get(n)) is not None}
        process = subprocess.Popen(
            command,
            env=environment | {"TL_SECRET": self._secret},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # Ctrl-C is for whoever started it.
            start_new_session=True,
        )
        with _killed_after(process, START_SECONDS):
            said = process.stdout.readline().decode().split()
        if said[:2] != ["listening", "on"]:
            process.kill()
            process.wait()
            raise AggregatorError(f"tl-aggregator does not start: {self.last_words()}")
        # The same one if it has to start again.
        self.port = int(said[2].rpartition(":")[2])
        return process

    def has_died(self) -> bool:
        return self._process.poll() is not None

    def start_again(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process = self._start()

    def last_words(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        begin = max(0, size - _LOG_END_BYTES)
        said = os.pread(self._log.fileno(), _LOG_END_BYTES, begin).decode(errors="replace")
        return said.strip() or "it said nothing"

    def close(self) -> None:
        """Ends it after a last snapshot."""
        self._process.stdin.close()
        with _killed_after(self._process, END_SECONDS):
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


class _killed_after:  # noqa: N801 - reads like a function
    """Inside, a process that takes longer is killed."""

    def __init__(self, process: subprocess.Popen, seconds: float):
        self._timer = threading.Timer(seconds, process.kill)

    def __enter__(self) -> None:
        self._timer.daemon = True
        self._timer.start()

    def __exit__(self, *_: Any) -> None:
        self._timer.cancel()


def serve(told: Mapping[str, Any]) -> None:
    """The task of "task": runs the aggregator until the driver ends the job, or is gone."""
    line = _line_to(told)
    program = Program(told["job"], told["secret"], _any_of(line.own_address), 0, None)
    try:
        here = {"do": "aggregator", "where": with_port(line.own_address, program.port)}
        answer: dict[str, Any] = {}
        while "stop" not in answer:
            try:
                answer = line.ask(here)
            except lines.LineError:
                line.close()
                line = _line_to(told)
            if program.has_died():
                raise AggregatorError(f"tl-aggregator has died: {program.last_words()}")
            time.sleep(BEAT_SECONDS)
    finally:
        line.close()
        program.close()


def _line_to(told: Mapping[str, Any]) -> lines.Line:
    """To the driver, which may be away for a while."""
    until = time.monotonic() + DRIVER_SECONDS
    while True:
        try:
            return lines.connect(*told["watch"], told["secret"], DRIVER_SECONDS)
        except lines.LineError:
            if time.monotonic() > until:
                raise
            time.sleep(BEAT_SECONDS)


def _any_of(address: str) -> str:
    return "::" if ":" in address else "0.0.0.0"


class InTask:
    """The driver's side of "task": a Spark job of one task, on a thread of its own."""

    def __init__(self, context: Any, told: Mapping[str, Any], lost: Callable[[str], None]):
        from pyspark import InheritableThread

        self._context, self._lost = context, lost
        self._group = f"{told['job']}-aggregator"
        self._closed = False
        broadcast = context.broadcast(dict(told))

        def run() -> None:
            context.setJobGroup(self._group, "TensorLightning's aggregator", True)
            try:
                context.parallelize([0], 1).mapPartitions(_serving(broadcast)).collect()
            except Exception as error:
                if not self._closed:
                    self._lost(f"the aggregator's task has failed: {str(error)[:_LOG_END_BYTES]}")

        self._thread = InheritableThread(target=run)
        self._thread.daemon = True
        self._thread.start()

    def close(self) -> None:
        """The Watch has told it to stop."""
        self._closed = True
        self._thread.join(END_SECONDS)
        if self._thread.is_alive():
            self._context.cancelJobGroup(self._group)


def _serving(broadcast: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(_: Iterator[Any]) -> Iterator[Any]:
        serve(broadcast.value)
        return iter(())

    return run


def secret_of(secret_file: str | None) -> str:
    """That of an aggregator that runs already."""
    file = secret_file or os.environ.get("TL_SECRET_FILE")
    try:
        secret = Path(file).read_text().strip() if file else os.environ.get("TL_SECRET", "")
    except OSError as error:
        raise ValueError(f"secret_file={file!r}: {error}") from error
    if not secret:
        raise ValueError(
            "an aggregator that runs already has a secret: secret_file=..., or TL_SECRET_FILE"
        )
    return secret
