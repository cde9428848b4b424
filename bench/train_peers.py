"""TensorFlow's ParameterServerStrategy and MultiWorkerMirroredStrategy in hosts of their own.

Workers are in hosts like those that ours are in. The parameter server is in one like that of our
aggregator, and so is the coordinator: what these two tell each other is not counted.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import train_hosts
from cluster.network import Host
from train_hosts import Process, ask_all, bytes_sent
from train_models import TASKS

SERVER_PORT, WORKER_PORT, CHIEF_PORT = 2221, 2222, 2223
STRATEGIES = {"pss": "ParameterServerStrategy", "mwms": "MultiWorkerMirroredStrategy"}


@dataclass
class PeerOutcome:
    """Of some steps of a strategy, after the first ones."""

    strategy: str
    task: str
    workers: int
    steps: int  # of each worker
    seconds: float
    bytes: int
    parameters: int

    @property
    def samples(self) -> int:
        return self.steps * self.workers * TASKS[self.task].batch

    @property
    def bytes_per_sample(self) -> float:
        return self.bytes / self.samples

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds

    def to_json(self) -> dict:
        return self.__dict__ | {"samples": self.samples}


class Peers:
    """The processes of one strategy."""

    def __init__(self, strategy: str, hosts: list[Host], folder: Path):
        self._strategy, self._hosts, self._folder = strategy, hosts, folder
        self._processes: list[Process] = []
        server, *workers = hosts
        cluster = {"worker": [f"{host.address}:{WORKER_PORT}" for host in workers]}
        if strategy == "pss":
            cluster["ps"] = [f"{server.address}:{SERVER_PORT}"]
            cluster["chief"] = [f"{server.address}:{CHIEF_PORT}"]
        servers = [self._start(server, "ps", 0, cluster)] if strategy == "pss" else []
        started = [
            self._start(host, "worker", index, cluster) for index, host in enumerate(workers)
        ]
        if strategy == "pss":
            for process in servers + started:
                process.answer()
            started = [self._start(server, "chief", 0, cluster)]
        self._asked = started

    def _start(self, host: Host, role: str, index: int, cluster: dict) -> Process:
        config = {"cluster": cluster, "task": {"type": role, "index": index}}
        process = Process(host, "train_peer.py", {"TF_CONFIG": json.dumps(config)})
        self._processes.append(process)
        return process

    def begin(self, task: str, rate: float, steps: int, seed: int = 0) -> int:
        """The number of the model's parameters."""
        self._task, self._done = task, 0
        records = self._folder / f"{task}.records"
        if not records.exists():
            train = TASKS[task].data().train
            np.random.default_rng(1).permutation(train).tofile(records)
        request = {"do": "begin", "task": task, "rate": rate, "steps": steps, "seed": seed}
        answers = self._ask(request | {"records": str(records)})
        self._parameters = answers[0]["parameters"]
        return self._parameters

    def train(self, until: int) -> PeerOutcome:
        """Up to this step of each worker."""
        before = bytes_sent(self._hosts)
        answers = self._ask({"do": "train", "until": until})
        moved = bytes_sent(self._hosts) - before
        steps, self._done = until - self._done, until
        return PeerOutcome(
            self._strategy,
            self._task,
            len(self._hosts) - 1,
            steps,
            max(answer["seconds"] for answer in answers),
            moved,
            self._parameters,
        )

    def set_rate(self, rate: str) -> None:
        for host in self._hosts:
            host.set_rate(rate)

    def _ask(self, request: dict) -> list[dict]:
        return ask_all(self._asked, [request] * len(self._asked))

    def close(self) -> None:
        for process in self._processes:
            process.close()


@contextlib.contextmanager
def peers(strategy: str, workers: int, rate: str) -> Iterator[Peers]:
    with (
        tempfile.TemporaryDirectory(prefix="tensorlightning-bench-") as folder,
        train_hosts.network(workers + 1, rate) as network,
    ):
        processes = Peers(strategy, network.hosts, Path(folder))
        try:
            yield processes
        finally:
            processes.close()
