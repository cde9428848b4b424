"""A standalone cluster whose hosts are network namespaces with 100 Mbit/s each, and what they bear.

The driver and the master are on the first host, a Spark worker on each of the others.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tf_library
from cluster.network import Network
from cluster.wait import until
from python.spark.living import runs
from spark_demo.cluster import Cluster, Host

DRIVER = Path(__file__).with_name("driver.py")
SECONDS = 420.0
ROWS_TRAINED = 4000 * 3
# Of accuracies after few steps, which differ that much anyway.
MARGIN = 0.2

pytestmark = pytest.mark.skipif(bool(Network.why_not()), reason=str(Network.why_not()))


class Driver:
    """driver.py, on the first host."""

    def __init__(self, network: Network, cluster: Cluster, environment: dict[str, str]):
        host = network.hosts[0]
        self.places: dict[int, dict] = {}
        self.result: dict | None = None
        self._process = host.popen(
            [sys.executable, str(DRIVER), cluster.url, "2"],
            env=environment | {"SPARK_LOCAL_IP": host.address},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._errors: queue.Queue[str] = queue.Queue()
        for target in (self._read, self._read_errors):
            threading.Thread(target=target, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout:
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            if "places" in said:
                self.places = {int(p): place for p, place in said["places"].items()}
            else:
                self.result = said

    def _read_errors(self) -> None:
        for line in self._process.stderr:
            self._errors.put(line)

    def has_begun(self) -> bool:
        """Both train."""
        return until(
            lambda: len(self.places) == 2 and all(p["steps"] > 40 for p in self.places.values()),
            SECONDS,
        )

    def finish(self) -> dict:
        status = self._process.wait(SECONDS)
        errors = "".join(self._errors.queue)
        assert status == 0, errors[-6000:]
        assert until(lambda: self.result is not None, 10), errors[-6000:]
        return self.result


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TL_")}
    paths = [str(tf_library.ROOT / name) for name in ("python", "tests")]
    return clean | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TL_TF_LIBRARY": str(tf_library.library()),
        "TL_PROGRAMS": str(tf_library.aggregator().parent),
    }


@pytest.fixture(scope="module")
def network():
    with Network(3, rate="100mbit") as made:
        yield made


@pytest.fixture(scope="module")
def cluster(network, environment):
    first, *others = (Host(host.address, host.namespace.wrap([])) for host in network.hosts)
    with Cluster(others, master=first, cores=2, memory="2g", environment=environment) as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed(network, cluster, environment) -> float:
    done = Driver(network, cluster, environment).finish()
    assert done["samples"] == ROWS_TRAINED
    return done["accuracy"]


def executor_of(cluster: Cluster, worker_pid: int) -> tuple[int, int]:
    """(which Spark worker, the executor's pid) of the Python worker with this pid."""
    for number, daemon in enumerate(cluster.workers):
        if worker_pid in daemon.processes():
            (executor,) = daemon.executors()
            return number, executor
    raise AssertionError(f"no Spark worker has process {worker_pid}")


def test_a_killed_executor_costs_a_task_and_no_accuracy(network, cluster, environment, undisturbed):
    driver = Driver(network, cluster, environment)
    assert driver.has_begun()
    _, executor = executor_of(cluster, driver.places[0]["pid"])
    os.kill(executor, signal.SIGKILL)
    done = driver.finish()
    assert done["samples"] == ROWS_TRAINED
    assert driver.places[0]["attempts"] == 2
    assert done["accuracy"] > undisturbed - MARGIN


def test_a_host_that_is_cut_off_is_replaced_and_its_worker_ends_when_it_is_back(
    network, cluster, environment, undisturbed
):
    driver = Driver(network, cluster, environment)
    assert driver.has_begun()
    before = driver.places[0]
    number, _ = executor_of(cluster, before["pid"])
    lost = network.hosts[1 + number]
    lost.partition()
    assert until(lambda: driver.places[0]["attempt"] != before["attempt"], SECONDS)
    assert runs(before["pid"]), "it knows nothing of it yet"
    lost.heal()
    assert until(lambda: not runs(before["pid"]), SECONDS), "the older attempt ends itself"
    done = driver.finish()
    assert done["samples"] == ROWS_TRAINED
    assert done["accuracy"] > undisturbed - MARGIN
