"""Jobs of stock caffe processes, each in a host of its own, and what they have logged."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
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
RUN_SECONDS = 900


@dataclass(frozen=True)
class Job:
    policy: str  # one: without others; none: several that do not talk
    workers: int
    rate: float
    iterations: int  # of each worker
    tests: int  # 0: none
    seed: int

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
    """Host 0 is the aggregator's."""
    with tempfile.TemporaryDirectory(prefix="tensorlightning-bench-") as folder:
        solver = Path(folder) / "solver.prototxt"
        solver.write_text(solver_of(job, Path(folder)))
        before = bytes_sent(hosts)
        with contextlib.ExitStack() as stack:
            told = {}
            if job.policy not in ("one", "none"):
                endpoint = stack.enter_context(aggregator(hosts[0]))
                told = {"TL_AGGREGATOR": endpoint, "TL_POLICY": job.policy}
            logs = train(hosts[1 : job.workers + 1], job, solver, told)
        moved = bytes_sent(hosts) - before
    return Outcome(job, moved, seconds_of(logs), curve_of(logs[0]))


def solver_of(job: Job, folder: Path) -> str:
    """The example's, with a learning rate that falls to zero; the line where there are others."""
    text = (EXAMPLE / "solver.prototxt").read_text()
    if job.policy in ("one", "none"):
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


def train(hosts: Sequence[Host], job: Job, solver: Path, told: dict[str, str]) -> list[str]:
    """What each worker has logged."""
    processes = []
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TL_")}
    for rank, host in enumerate(hosts):
        environment = clean | train_hosts.QUIET | told
        environment |= {"TL_RANK": str(rank), "TL_SIZE": str(job.workers)}
        if job.policy not in ("one", "none"):
            environment["TL_CAFFE_PLUGIN"] = str(find_plugin(os.environ))
        processes.append(
            host.popen(
                [*MORTAL, CAFFE, "train", f"--solver={solver}"],
                cwd=EXAMPLE,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        logs = [process.communicate(timeout=RUN_SECONDS)[1] for process in processes]
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"Caffe did not end within {RUN_SECONDS} s") from None
    finally:
        for process in processes:
            process.kill()
    for process, log in zip(processes, logs, strict=True):
        if process.returncode != 0:
            raise failure(CAFFE, process.returncode, log)
    return logs


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
