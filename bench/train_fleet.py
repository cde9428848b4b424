"""Workers and an aggregator, each in a host of its own, that train one model after the other.

    with fleet(programs, workers=4) as team:
        outcome = team.run(Spec("cnn", "elastic", workers=4, rate=0.06, steps=1600))

At each of its evaluations a run stands still: what it has learned is looked at from outside, and
neither the time nor the bytes of that are its own.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import train_centre
import train_hosts
from cluster.network import Network
from comm_programs import started
from report import BenchmarkError
from tensorlightning import _library
from tensorlightning.launch.programs import find_program
from train_hosts import Process, ask_all, bytes_sent
from train_models import TASKS

SERVER = 0  # the host of the aggregator
# Without an aggregator: one worker, or workers that do not talk at all.
ALONE = ("one", "none")
# Whose centre is no model: every worker's own is looked at.
BY_GRADIENT = ("gradient", "gradient-async")


@dataclass(frozen=True)
class Programs:
    tl_aggregator: Path

    @classmethod
    def find(cls) -> "Programs":
        """As workers and tlrun find them."""
        try:
            _library.path()
            return cls(find_program("tl-aggregator"))
        except (ImportError, LookupError) as error:
            raise BenchmarkError(f"{error} (make bench-train does all of it)") from error


@dataclass(frozen=True)
class Spec:
    """What is to be trained, by how many, and how."""

    task: str
    policy: str
    workers: int
    rate: float
    steps: int  # of each worker
    seed: int = 0
    evaluations: int = 10
    # Of the policy, where they are not the defaults: {"period": 4}.
    settings: dict = field(default_factory=dict)

    @property
    def samples(self) -> int:
        return self.steps * self.workers * TASKS[self.task].batch

    @property
    def environment(self) -> dict[str, str]:
        chosen = {"policy": self.policy} | self.settings
        return {f"TL_{name.upper()}": str(value) for name, value in chosen.items()}


@dataclass
class Point:
    step: int  # of each worker
    seconds: float
    value: float  # accuracy in per cent, or bits per character


@dataclass
class Outcome:
    spec: Spec
    parameters: int = 0
    curve: list[Point] = field(default_factory=list)
    # On the network: to begin with, while training, to end with.
    start_bytes: int = 0
    training_bytes: int = 0
    finish_bytes: int = 0
    statistics: list[dict] = field(default_factory=list)

    @property
    def whole_bytes(self) -> int:
        return self.start_bytes + self.training_bytes + self.finish_bytes

    @property
    def seconds(self) -> float:
        return self.curve[-1].seconds

    @property
    def value(self) -> float:
        return self.curve[-1].value

    @property
    def best(self) -> float:
        values = [point.value for point in self.curve]
        return max(values) if TASKS[self.spec.task].more_is_better else min(values)

    def to_json(self) -> dict:
        spec = self.spec
        return {
            "task": spec.task,
            "policy": spec.policy,
            "workers": spec.workers,
            "rate": spec.rate,
            "steps": spec.steps,
            "seed": spec.seed,
            "settings": spec.settings,
            "parameters": self.parameters,
            "samples": spec.samples,
            "bytes": {
                "start": self.start_bytes,
                "training": self.training_bytes,
                "finish": self.finish_bytes,
            },
            "curve": [[p.step, round(p.seconds, 3), round(p.value, 4)] for p in self.curve],
        }


class Fleet:
    def __init__(self, network: Network, programs: Programs, workers: int, folder: Path):
        self.hosts = network.hosts
        self._programs = programs
        self._folder = folder
        self._runs = 0
        self.workers = [Process(host, "train_worker.py") for host in network.hosts[1 : workers + 1]]

    def set_rate(self, rate: str) -> None:
        for host in self.hosts:
            host.set_rate(rate)

    def run(self, spec: Spec, progress: Callable[[], None] = lambda: None) -> Outcome:
        with self.under_way(spec, snapshots=True) as run:
            for number in range(1, spec.evaluations + 1):
                run.train(spec.steps * number // spec.evaluations)
                run.evaluate()
            run.end()
        progress()
        return run.outcome

    def run_alone(self, specs: Sequence[Spec]) -> list[Outcome]:
        """Runs of one worker each, as many at a time as there are specs."""
        with contextlib.ExitStack() as stack:
            runs = [
                stack.enter_context(self.under_way(spec, True, self.workers[place : place + 1]))
                for place, spec in enumerate(specs)
            ]
            for number in range(1, specs[0].evaluations + 1):
                train_together(runs, number)
                for run in runs:
                    run.evaluate()
            for run in runs:
                run.end()
        return [run.outcome for run in runs]

    @contextlib.contextmanager
    def under_way(
        self, spec: Spec, snapshots: bool, workers: Sequence[Process] | None = None
    ) -> Iterator["Running"]:
        """A run that has begun; the caller trains, evaluates and ends it."""
        self._runs += 1
        name = f"run-{self._runs}"
        folder = self._folder / name
        folder.mkdir()
        workers = list(workers or self.workers[: spec.workers])
        before = bytes_sent(self.hosts)
        with contextlib.ExitStack() as stack:
            environment = {}
            if spec.policy not in ALONE:
                endpoint = stack.enter_context(self._aggregator(folder, snapshots))
                environment = {"TL_AGGREGATOR": endpoint, "TL_JOB": name, **spec.environment}
            running = Running(self, spec, name, folder, workers, environment)
            running.outcome.start_bytes = bytes_sent(self.hosts) - before
            yield running

    @contextlib.contextmanager
    def _aggregator(self, folder: Path, snapshots: bool) -> Iterator[str]:
        server = self.hosts[SERVER]
        # Nobody but these hosts can reach it.
        flags = ["--open-to-anybody", "--log-level=warning", f"--listen={server.address}:0"]
        if snapshots:
            flags += train_centre.flags(folder / "snapshots")
        command = [self._programs.tl_aggregator, *flags]
        with started(command, server.namespace.wrap) as aggregator:
            yield aggregator.line_with("listening on ").split()[2]

    def evaluate(self, task: str, weights: Path) -> float:
        """By all workers, a part each."""
        request = {"do": "evaluate", "task": task, "weights": str(weights)}
        parts = len(self.workers)
        requests = [request | {"part": [part, parts]} for part in range(parts)]
        answers = ask_all(self.workers, requests)
        value = sum(answer["sum"] for answer in answers) / sum(a["count"] for a in answers)
        return 100 * value if TASKS[task].more_is_better else value


class Running:
    """One run on its way."""

    def __init__(self, fleet: Fleet, spec: Spec, name: str, folder: Path, workers, environment):
        self._fleet, self.spec, self.name, self._folder = fleet, spec, name, folder
        self.workers = workers
        self.outcome = Outcome(spec)
        self._seconds = 0.0
        self._step = 0
        request = {
            "do": "begin",
            "run": name,
            "task": spec.task,
            "policy": spec.policy,
            "rate": spec.rate,
            "steps": spec.steps,
            "seed": spec.seed,
            "size": len(workers),
        }
        ranks = range(len(workers))
        answers = ask_all(
            workers,
            [
                request | {"rank": rank, "environment": environment | ranked(rank, len(workers))}
                for rank in ranks
            ],
        )
        self.outcome.parameters = answers[0]["parameters"]
        self._sizes = answers[0]["sizes"]

    def train(self, until: int) -> float:
        """To this step of each worker; the seconds of the slowest."""
        before = bytes_sent(self._fleet.hosts)
        request = {"do": "train", "run": self.name, "until": until}
        answers = ask_all(self.workers, [request] * len(self.workers))
        return self.trained(answers, until, bytes_sent(self._fleet.hosts) - before)

    def trained(self, answers: Sequence[dict], until: int, moved: int) -> float:
        seconds = max(answer["seconds"] for answer in answers)
        self._seconds += seconds
        self._step = until
        self.outcome.training_bytes += moved
        return seconds

    def evaluate(self) -> None:
        weights = self._folder / "weights.npy"
        if self.spec.policy in ALONE or self.spec.policy in BY_GRADIENT:
            self.workers[0].ask(do="weights", run=self.name, path=str(weights))
            self.workers[0].answer()
        else:
            np.save(weights, train_centre.read(self._folder / "snapshots", self._sizes))
        value = self._fleet.evaluate(self.spec.task, weights)
        self.outcome.curve.append(Point(self._step, self._seconds, value))

    def end(self) -> None:
        before = bytes_sent(self._fleet.hosts)
        request = {"do": "end", "run": self.name}
        answers = ask_all(self.workers, [request] * len(self.workers))
        self.outcome.statistics = [answer["statistics"] for answer in answers]
        self.outcome.finish_bytes = bytes_sent(self._fleet.hosts) - before


def train_together(runs: Sequence[Running], number: int) -> None:
    """Runs of other workers each, all at the same time, up to this evaluation."""
    untils = [run.spec.steps * number // run.spec.evaluations for run in runs]
    for run, until in zip(runs, untils, strict=True):
        for worker in run.workers:
            worker.ask(do="train", run=run.name, until=until)
    for run, until in zip(runs, untils, strict=True):
        run.trained([worker.answer() for worker in run.workers], until, 0)


def ranked(rank: int, size: int) -> dict[str, str]:
    return {"TL_RANK": str(rank), "TL_SIZE": str(size)}


@contextlib.contextmanager
def fleet(programs: Programs, workers: int, rate: str) -> Iterator[Fleet]:
    # In memory: snapshots must not wait for a disk.
    shared = Path("/dev/shm")
    place = shared if shared.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="tensorlightning-bench-", dir=place) as folder,
        train_hosts.network(workers + 1, rate) as network,
    ):
        yield Fleet(network, programs, workers, Path(folder))
