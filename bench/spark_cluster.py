"""A standalone Spark cluster whose driver, master and workers are hosts of their own.

    with cluster("100mbit") as spark:
        with spark.driver("spark_ours.py") as driver:
            done = driver.fit(folder, seed=1, epochs=5, batch=64)

One driver is there at a time: it has all cores of the cluster.
"""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import machine
import train_hosts
from cluster.network import Host
from report import BenchmarkError
from spark_data import WORKERS
from train_hosts import Process, bytes_sent

sys.path.insert(0, str(machine.ROOT / "examples"))
import spark_demo.cluster as demo

WORKER_MEMORY, EXECUTOR_MEMORY, DRIVER_MEMORY = "3g", "2g", "4g"
ENVIRONMENT = {
    # A worker has one core, whoever trains in it.
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "PYTHONPATH": f"{machine.ROOT / 'bench'}:{machine.ROOT / 'python'}",
} | train_hosts.QUIET


@dataclass(frozen=True)
class Fitted:
    """One training."""

    side: str
    seed: int
    samples: int  # of all workers, in all epochs
    seconds: float
    bytes: int  # on all interfaces
    accuracy: float

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds

    @property
    def bytes_per_sample(self) -> float:
        return self.bytes / self.samples

    def to_json(self) -> dict:
        return self.__dict__ | {"samples_per_s": round(self.samples_per_s, 1)}


class Driver:
    """A program that has a SparkSession, and does what it is asked."""

    def __init__(self, process: Process, hosts: list[Host]):
        self._process, self._hosts = process, hosts

    def ask(self, **request) -> dict:
        self._process.ask(**request)
        return self._process.answer()

    def fit(self, side: str, *, seed: int, test_rows: int, **request) -> Fitted:
        """Everything that goes over the network from fit() to its end is counted."""
        self.ask(do="prepare", side=side, seed=seed, **request)
        before = bytes_sent(self._hosts)
        answer = self.ask(do="fit")
        moved = bytes_sent(self._hosts) - before
        tested = self.ask(do="test", rows=test_rows)
        return Fitted(side, seed, answer["samples"], answer["seconds"], moved, tested["accuracy"])


class SparkHosts:
    """The cluster, and the host from which it is driven."""

    def __init__(self, hosts: list[Host], cluster: demo.Cluster, folder: Path):
        self.hosts, self._cluster, self._folder = hosts, cluster, folder

    @contextlib.contextmanager
    def driver(self, script: str, python: str | Path = sys.executable) -> Iterator[Driver]:
        host = self.hosts[0]
        environment = ENVIRONMENT | {
            "SPARK_HOME": str(self._cluster.spark_home),
            "SPARK_LOCAL_IP": host.address,
            "SPARK_LOCAL_DIRS": str(self._folder),
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
        }
        process = Process(host, script, environment, python)
        try:
            driver = Driver(process, self.hosts)
            driver.ask(
                do="begin",
                master=self._cluster.url,
                address=host.address,
                driver_memory=DRIVER_MEMORY,
                executor_memory=EXECUTOR_MEMORY,
            )
            yield driver
            driver.ask(do="end")
        finally:
            process.close()


def lacking() -> str | None:
    """Why there can be no cluster; None if there can."""
    try:
        demo.check_java()
        demo.spark_home()
    except demo.ClusterError as error:
        return str(error)
    return None


@contextlib.contextmanager
def cluster(rate: str) -> Iterator[SparkHosts]:
    with (
        tempfile.TemporaryDirectory(
            prefix="tensorlightning-bench-", ignore_cleanup_errors=True
        ) as folder,
        train_hosts.network(2 + WORKERS, rate) as network,
        contextlib.ExitStack() as ending,
    ):
        _, master, *workers = (
            demo.Host(host.address, host.namespace.wrap([])) for host in network.hosts
        )
        made = demo.Cluster(workers, master=master, memory=WORKER_MEMORY, environment=ENVIRONMENT)
        try:
            ending.enter_context(made)
        except demo.ClusterError as error:
            raise BenchmarkError(str(error)) from error
        yield SparkHosts(network.hosts, made, Path(folder))
