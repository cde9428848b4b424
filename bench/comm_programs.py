"""The programs that the benchmark of comm runs. None outlives it, however it ends."""

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from report import BenchmarkError, failure

# Killed when this process dies.
MORTAL = ["setpriv", "--pdeathsig", "KILL", "--"]
RUN_SECONDS = 600

# From a command to the one that runs it somewhere else: in a network namespace, say.
Wrap = Callable[[Sequence[object]], list[str]]


def here(command: Sequence[object]) -> list[str]:
    return [str(word) for word in command]


def run(command: Sequence[object], wrap: Wrap = here) -> str:
    """Runs a program to its end, and gives what it printed."""
    whole = [*MORTAL, *wrap(command)]
    try:
        ran = subprocess.run(whole, capture_output=True, text=True, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{command[0]} did not end within {RUN_SECONDS} s") from None
    if ran.returncode != 0:
        raise failure(command[0], ran.returncode, ran.stderr or ran.stdout)
    return ran.stdout


class Running:
    """A program that has begun."""

    def __init__(self, command: Sequence[object], process: subprocess.Popen, said: TextIO):
        self._program = command[0]
        self._process = process
        self._said = said

    @property
    def pid(self) -> int:
        return self._process.pid

    def line_with(self, text: str) -> str:
        """The next line of its output that has this text."""
        for line in self._process.stdout:
            if text in line:
                return line.strip()
        self._said.seek(0)
        raise failure(self._program, self._process.wait(), self._said.read())

    def resident_kib(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1])

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


@contextlib.contextmanager
def started(command: Sequence[object], wrap: Wrap = here) -> Iterator[Running]:
    """A program that runs as long as the context."""
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            [*MORTAL, *wrap(command)], stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        try:
            yield Running(command, process, said)
        finally:
            process.kill()


class Programs:
    """Ours, as Bazel has built them."""

    def __init__(self, folder: Path):
        # Bazel moves links when something else is built meanwhile.
        folder = folder.resolve()
        self.bench = folder / "bench/comm"
        self.tl_aggregator = folder / "comm/tools/tl-aggregator"
        self.tl_load = folder / "comm/tools/tl-load"

    def check(self, unoptimised: bool) -> None:
        """`unoptimised`: that they were built without -c opt is all right."""
        for program in (self.bench, self.tl_aggregator, self.tl_load):
            if not program.is_file():
                raise BenchmarkError(f"{program} is not there: run make bench-comm")
        if not unoptimised and not json.loads(run([self.bench, "about"]))["optimised"]:
            raise BenchmarkError(f"{self.bench} was compiled without -c opt: run make bench-comm")

    def part(self, name: str, *flags: str, wrap: Wrap = here) -> list[dict]:
        """What a part of bench/comm has measured, turn by turn."""
        return [json.loads(line) for line in run([self.bench, name, *flags], wrap).splitlines()]

    @contextlib.contextmanager
    def aggregator(
        self, *flags: str, host: str = "127.0.0.1", wrap: Wrap = here
    ) -> Iterator[tuple[str, Running]]:
        """Its endpoint, and its process."""
        quiet = ("--log-level=warning", f"--listen={host}:0")
        command = [self.tl_aggregator, *quiet, *flags]
        with started(command, wrap) as running:
            yield running.line_with("listening on ").split()[2], running

    def load(self, endpoint: str, workers: int, layout: str, *flags: str) -> list[object]:
        """The command for so many workers."""
        return [
            self.tl_load,
            f"--aggregator={endpoint}",
            f"--workers={workers}",
            f"--layout={layout}",
            "--json=-",
            *flags,
        ]
