"""A Spark standalone cluster of one's own, from the pyspark wheel: for demos, tests and benchmarks.

    with Cluster(workers=2) as cluster:
        spark = SparkSession.builder.master(cluster.url).getOrCreate()

A master and workers, each a process; a worker starts executors, and these start Python workers:

    this process -+- master
                  +- worker 0 --- executor --- Python daemon --- Python workers
                  +- worker 1 --- ...

Everything listens on loopback, on ports that are free, and writes into one temporary folder. When
the context ends, no process and no file is left. If this process is killed, its daemons die with
it, and executors with their worker.

A Host is another machine, or as good as: with one network namespace for each,

    Cluster([Host("10.1.0.2", ["ip", "netns", "exec", "a"])], master=Host("10.1.0.1", [...]))
"""

import contextlib
import functools
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_demo.daemon import Daemon

START_SECONDS = 90.0
ASK_SECONDS = 10.0
POLL_SECONDS = 0.3
# Another program may take a port between our look and Spark's.
PORT_TRIES = 3
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
# Daemons do little: they shall start soon, and leave the cores to those who train.
DAEMON_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
DAEMON_MEMORY = "512m"

# What the master tells the world. In a process of its own, which can be on the master's host.
ASK = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=5)
connection.request("GET", "/json/")
print(connection.getresponse().read().decode())
"""
# Asked of the Python whose Spark it is, without importing that: it would take a second.
FIND_SPARK = """
import importlib.util
spec = importlib.util.find_spec("pyspark")
print(spec.submodule_search_locations[0] if spec else "")
"""


class ClusterError(RuntimeError):
    """The cluster can't be had; the text says why, with the end of the log that tells it."""


@dataclass(frozen=True)
class Host:
    """Where a daemon runs: its address, and what to put before a command to have it run there."""

    address: str = "127.0.0.1"
    prefix: Sequence[str] = ()


class Cluster:
    """A master and its workers, as long as the context lasts.

    workers: how many, on this machine; or their hosts
    cores, memory: what each worker has to give to executors
    master: where the master runs
    python: whose pyspark it is
    settings: of the daemons, as {"spark.worker.timeout": "10"}
    environment: for daemons, executors and their Python workers, besides this process's variables
    start_seconds: how long the master, and then the workers, may take to come
    """

    def __init__(
        self,
        workers: int | Sequence[Host] = 2,
        *,
        cores: int = 1,
        memory: str = "2g",
        master: Host | None = None,
        python: str | Path = sys.executable,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        start_seconds: float = START_SECONDS,
    ):
        self.hosts = [Host()] * workers if isinstance(workers, int) else list(workers)
        self.master_host = master or Host()
        self.url = ""
        self.master: Daemon | None = None
        self.workers: list[Daemon] = []
        self._size = ("--cores", str(cores), "--memory", memory)
        self.python = str(python)
        self._seconds, self._ui_port = start_seconds, 0
        self._settings, self._environment = dict(settings or {}), dict(environment or {})
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> "Cluster":
        check_java()
        self.spark_home = spark_home(self.python)
        try:
            made = tempfile.TemporaryDirectory(prefix="tl-spark-", ignore_cleanup_errors=True)
            self._folder = Path(self._undo.enter_context(made))
            self._start_master()
            self._start_workers()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything. May be called again."""
        self._undo.close()

    def kill_worker(self, number: int) -> None:
        """With its executors and their Python workers, as when its machine loses its power."""
        self.workers[number].kill()

    def alive_workers(self) -> int:
        """How many the master takes for alive."""
        return self._ask().get("aliveworkers", 0)

    def _start_master(self) -> None:
        host = self.master_host
        for tries_left in reversed(range(PORT_TRIES)):
            port, self._ui_port = _free_port(), _free_port()
            places = ["--port", str(port), "--webui-port", str(self._ui_port)]
            # Spark would take the next port, and nobody would know.
            only = {"spark.port.maxRetries": "0"}
            self.master = self._start("master", host, [MASTER, *places], only)
            try:
                self._wait(lambda: bool(self._ask()), [self.master], "Spark's master has not come")
                break
            except ClusterError:
                if not tries_left or "Address already in use" not in self.master.log():
                    raise
        self.url = f"spark://{host.address}:{port}"

    def _start_workers(self) -> None:
        for number, host in enumerate(self.hosts):
            work = ["--work-dir", str(self._folder / f"work-{number}")]
            places = ["--port", "0", "--webui-port", "0", *work, self.url]
            self.workers.append(
                self._start(f"worker-{number}", host, [WORKER, *self._size, *places])
            )
        self._wait(
            lambda: self.alive_workers() == len(self.hosts),
            [self.master, *self.workers],
            f"not all of Spark's {len(self.hosts)} workers have come",
        )

    def _start(
        self, name: str, host: Host, what: Sequence[str], only: Mapping[str, str] | None = None
    ) -> Daemon:
        local = self._folder / f"local-{name}"
        local.mkdir(exist_ok=True)
        command = [*host.prefix, str(self.spark_home / "bin/spark-class"), *what]
        variables = self._variables(host, local, self._settings | dict(only or {}))
        log = self._folder / f"{name}.log"
        daemon = Daemon(name, [*command, "--host", host.address], variables, log)
        self._undo.callback(daemon.kill)
        return daemon

    def _variables(self, host: Host, local: Path, settings: Mapping[str, str]) -> dict[str, str]:
        # Spark's own are not inherited: they may be of another Spark.
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
        options = [*DAEMON_OPTIONS, *(f"-D{name}={value}" for name, value in settings.items())]
        return kept | {
            "SPARK_HOME": str(self.spark_home),
            "SPARK_LOCAL_IP": host.address,
            "SPARK_LOCAL_DIRS": str(local),
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": shlex.join(options),
            # For executors too: what they leave when they are killed is to be in our folder.
            "JDK_JAVA_OPTIONS": f"-XX:-UsePerfData -Djava.io.tmpdir={local}",
            "TMPDIR": str(local),
            **self._environment,
        }

    def _ask(self) -> dict:
        """What the master says of the cluster; nothing, if it does not answer."""
        where = [self.master_host.address, str(self._ui_port)]
        command = [*self.master_host.prefix, sys.executable, "-IS", "-c", ASK, *where]
        try:
            answer = subprocess.run(command, capture_output=True, timeout=ASK_SECONDS)
            return json.loads(answer.stdout)
        except (subprocess.TimeoutExpired, ValueError):
            return {}

    def _wait(self, condition: Callable[[], bool], daemons: Sequence[Daemon], what: str) -> None:
        deadline = time.monotonic() + self._seconds
        while not condition():
            dead = [daemon for daemon in daemons if not daemon.running()]
            if dead or time.monotonic() > deadline:
                blamed = (dead or list(daemons))[-1]
                why = f"{blamed.name} has ended" if dead else f"within {self._seconds:.0f} s"
                raise ClusterError(
                    f"{what}: {why}. The log of {blamed.name} ends with\n{blamed.log()}"
                )
            time.sleep(POLL_SECONDS)


@functools.cache
def spark_home(python: str = sys.executable) -> Path:
    """Where a Python has its Spark."""
    ran = subprocess.run([python, "-c", FIND_SPARK], capture_output=True, text=True)
    if ran.returncode != 0 or not ran.stdout.strip():
        raise ClusterError(f"{python} has no pyspark: pip install pyspark. {ran.stderr}".strip())
    return Path(ran.stdout.strip())


def check_java() -> None:
    if not os.environ.get("JAVA_HOME") and not shutil.which("java"):
        raise ClusterError(
            "Spark needs Java 17, and there is none: set JAVA_HOME, or put it on PATH"
        )


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]
