"""Jobs of stock caffe processes, each in a host of its own, and what they have logged."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import machine
import train_hosts
from cluster.network import Host
from comm_programs import MORTAL, started
from report import BenchmarkError, failure
from tensorlightning.launch.caffe import find_plugin
from tensorlightning.launch.programs import ProgramMissingError, find_program
from train_hosts import bytes_sent

sys.path.insert(0, str(machine.ROOT / "examples/caffe_lenet"))
import data

EXAMPLE = machine.ROOT / "examples/caffe_lenet"
CAFFE = machine.ROOT / ".caffe/bin/caffe"
BATCH = 64
RUN_SECONDS = 3600


@dataclass(frozen=True)
class Job:
    policy: str  # one: without others; none: several that do not talk
    workers: int
    rate: float
    iterations: int  # of each worker
    tests: int  # 0: none
    seed: int

    @property
    def talks(self) -> bool:
        return self.policy not in ("one", "none")

    @property
    def samples(self) -> int:
        return self.iterations * self.workers * BATCH


@dataclass
class Point:
    iteration: int
    value: float  # accuracy in per cent


@dataclass
class Outcome:
    job: Job
    bytes: int
    seconds: float  # from the first one's beginning to the last one's end
    curve: list[Point] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        return self.curve[-1].value if self.curve else float("nan")

    @property
    def bytes_per_sample(self) -> float:
        return self.bytes / self.job.samples

    @property
    def samples_per_s(self) -> float:
        return self.job.samples / self.seconds

    def to_json(self) -> dict:
        return {
            **vars(self.job),
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "curve": [[point.iteration, point.value] for point in self.curve],
        }


def lacking() -> str | None:
    """What is not there, and how to get it."""
    if not CAFFE.exists():
        return f"{CAFFE} is not there: run make bench-caffe"
    try:
        find_plugin(os.environ)
        find_program("tl-aggregator")
    except ProgramMissingError as error:
        return f"{error} (make bench-caffe does all of it)"
    return None


def prepare() -> None:
    data.make(EXAMPLE / "out")


def run(hosts: Sequence[Host], job: Job) -> Outcome:
    """All workers of a job. Host 0 is the aggregator's."""
    before = bytes_sent(hosts)
    with _stage() as (stack, folder):
        told = {}
        if job.talks:
            endpoint = stack.enter_context(aggregator(hosts[0]))
            told = {"TL_AGGREGATOR": endpoint, "TL_POLICY": job.policy}
        solver = write_solver(job, folder)
        workers = [
            Worker(host, job, solver, told | {"TL_RANK": str(rank), "TL_SIZE": str(job.workers)})
            for rank, host in enumerate(hosts[1 : job.workers + 1])
        ]
        logs = logs_of(workers)
    return Outcome(job, bytes_sent(hosts) - before, seconds_of(logs), curve_of(logs[0]))


def run_alone(hosts: Sequence[Host], jobs: Sequence[Job]) -> list[Outcome]:
    """Jobs of one worker each, all at once: what they learn does not depend on that."""
    with _stage() as (_, folder):
        workers = []
        for host, job in zip(hosts, jobs, strict=False):
            own = folder / str(len(workers))
            own.mkdir()
            workers.append(Worker(host, job, write_solver(job, own), {}))
        logs = logs_of(workers)
    return [
        Outcome(job, 0, seconds_of([log]), curve_of(log))
        for job, log in zip(jobs, logs, strict=True)
    ]


@contextlib.contextmanager
def _stage() -> Iterator[tuple[contextlib.ExitStack, Path]]:
    with contextlib.ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="tensorlightning-bench-")
        yield stack, Path(stack.enter_context(temporary))


def write_solver(job: Job, folder: Path) -> Path:
    path = folder / "solver.prototxt"
    path.write_text(solver_of(job, folder))
    return path


def solver_of(job: Job, folder: Path) -> str:
    """The example's, with a learning rate that falls to zero; the line where there are others."""
    text = (EXAMPLE / "solver.prototxt").read_text()
    if not job.talks:
        text = text.replace("tensorlightning_param { }", "")
    fields = {
        "base_lr": job.rate,
        "lr_policy": '"poly"',
        "power": 1,
        "max_iter": job.iterations,
        "random_seed": job.seed,
        "snapshot_prefix": f'"{folder}/lenet"',
        "test_interval": job.iterations // job.tests if job.tests else 1_000_000,
        "display": job.iterations,
    }
    for name, value in fields.items():
        text = re.sub(rf"^{name}: .*$", f"{name}: {value}", text, flags=re.MULTILINE)
    more = "" if job.tests else "test_initialization: false\nsnapshot_after_train: false\n"
    return text + more


@contextlib.contextmanager
def aggregator(host: Host) -> Iterator[str]:
    # Nobody but these hosts can reach it.
    flags = ["--open-to-anybody", "--log-level=warning", f"--listen={host.address}:0"]
    command = [find_program("tl-aggregator"), *flags]
    with started(command, host.namespace.wrap) as running:
        yield running.line_with("listening on ").split()[2]


class Worker:
    """A stock caffe that trains in a host."""

    def __init__(self, host: Host, job: Job, solver: Path, told: dict[str, str]):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TL_")}
        plugin = {"TL_CAFFE_PLUGIN": str(find_plugin(os.environ))} if job.talks else {}
        # No pipe: nobody reads while others are waited for.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = host.popen(
            [*MORTAL, CAFFE, "train", f"--solver={solver}"],
            cwd=EXAMPLE,
            env=clean | train_hosts.QUIET | plugin | told,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
        )

    def log(self, until: float) -> str:
        """All of it, once the training has ended."""
        try:
            status = self._process.wait(max(0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"Caffe did not end within {RUN_SECONDS} s") from None
        self._log.seek(0)
        text = self._log.read()
        if status != 0:
            raise failure(CAFFE, status, text)
        return text

    def kill(self) -> None:
        self._process.kill()
        self._log.close()


def logs_of(workers: Sequence[Worker]) -> list[str]:
    until = time.monotonic() + RUN_SECONDS
    try:
        return [worker.log(until) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()


_LINE = re.compile(r"^I\d+ (\d+:\d+:\d+\.\d+) .*?\] ", re.MULTILINE)


def seconds_of(logs: Sequence[str]) -> float:
    """From where the first one has begun to where the last one has ended."""
    begins, ends = [], []
    for log in logs:
        times = {}
        for line in log.splitlines():
            if found := _LINE.match(line):
                at = datetime.strptime(found[1], "%H:%M:%S.%f")
                if "Starting Optimization" in line:
                    times["begin"] = at
                times["end"] = at
        begins.append(times["begin"])
        ends.append(times["end"])
    # Midnight may be in between.
    return (max(ends) - min(begins)).total_seconds() % 86400


def curve_of(log: str) -> list[Point]:
    curve, iteration = [], 0
    for line in log.splitlines():
        if found := re.search(r"Iteration (\d+), Testing net", line):
            iteration = int(found[1])
        elif found := re.search(r"Test net output #\d+: accuracy = ([\d.e-]+)", line):
            curve.append(Point(iteration, round(100 * float(found[1]), 4)))
    return curve
