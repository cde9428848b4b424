"""Processes that are asked in lines of JSON, each in its own host of a network."""

import collections
import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import machine
from comm_programs import MORTAL
from report import BenchmarkError

# The networks of the tests are good for benchmarks too; tl-aggregator is found as tlrun finds it.
sys.path.insert(0, str(machine.ROOT / "tests"))
sys.path.insert(0, str(machine.ROOT / "python"))
from cluster.network import Host, Network

PATIENCE_SECONDS = 600
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "-1",
    # Arithmetic of a worker is one thread's.
    "OMP_NUM_THREADS": "1",
}


class Process:
    """A script of bench/ that answers each line with one line."""

    def __init__(
        self,
        host: Host,
        script: str,
        environment: dict[str, str] | None = None,
        python: str | Path = sys.executable,
    ):
        self.host, self.name = host, f"{script} at {host.address}"
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = host.popen(
            [*MORTAL, python, Path(__file__).parent / script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=os.environ | QUIET | (environment or {}),
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def ask(self, **request) -> None:
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._failure("has ended") from None

    def answer(self) -> dict:
        try:
            line = self._answers.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise self._failure(f"has not answered for {PATIENCE_SECONDS} s") from None
        if line is None:
            raise self._failure("has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise self._failure(f"failed: {answer['error']}")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._said.close()

    def _failure(self, what: str) -> BenchmarkError:
        self._said.seek(0)
        last = "".join(collections.deque(self._said, 12)).strip()
        return BenchmarkError(f"{self.name} {what}\n{last}")


def ask_all(processes: Sequence[Process], requests: Sequence[dict]) -> list[dict]:
    """Each of them at the same time."""
    for process, request in zip(processes, requests, strict=True):
        process.ask(**request)
    return [process.answer() for process in processes]


def bytes_sent(hosts: Sequence[Host]) -> int:
    """By all interfaces so far: every byte that was on the network, once."""
    return sum(host.bytes()[1] for host in hosts)


@contextlib.contextmanager
def network(hosts: int, rate: str) -> Iterator[Network]:
    if reason := Network.why_not():
        raise BenchmarkError(f"the workers can't have hosts of their own: {reason}")
    with Network(hosts, rate=rate) as made:
        yield made
