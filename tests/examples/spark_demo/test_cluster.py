"""The standalone cluster that the demo, other tests and the benchmark run on."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.network import Network
from cluster.wait import until
from spark_demo.cluster import Cluster, ClusterError, Host
from spark_demo.daemon import Daemon

ROOT = Path(__file__).resolve().parent.parent.parent.parent
SPARK4 = ROOT / ".venv-spark4/bin/python"
DEADLINE_S = 480

# A driver. It says on how many workers its tasks ran, and what they have seen.
DRIVER = """
import os, sys, time
import pyarrow as pa
from pyspark.sql import SparkSession

def look(batches):
    rows = sum(batch.num_rows for batch in batches)
    seen = [rows, os.environ["SPARK_LOCAL_IP"], os.environ["TMPDIR"]]
    yield pa.RecordBatch.from_pydict(dict(zip(("rows", "address", "folder"), [[s] for s in seen])))

spark = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false")
spark = spark.config("spark.executor.memory", "512m").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
while len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) < 3:
    time.sleep(0.2)
found = spark.range(0, 100, 1, 2).mapInArrow(look, "rows long, address string, folder string")
for row in found.collect():
    print(spark.version, row.rows, row.address, row.folder)
"""

WAITING = """
import sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.master(sys.argv[1]).config("spark.executor.memory", "512m")
spark.config("spark.ui.enabled", "false").getOrCreate()
time.sleep(600)
"""


def drive(cluster: Cluster, folder: Path, *prefix: str, **variables: str) -> list[list[str]]:
    """Runs the driver; gives what its tasks have seen."""
    (folder / "driver.py").write_text(DRIVER)
    python = cluster.python
    ran = subprocess.run(
        [*prefix, python, "driver.py", cluster.url],
        cwd=folder,
        env=os.environ | {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"} | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr + cluster.workers[0].log()
    return [line.split() for line in ran.stdout.splitlines()]


@pytest.fixture
def folder(monkeypatch, tmp_path) -> Path:
    """Where temporary files are made."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


@pytest.mark.parametrize("python", [sys.executable, SPARK4], ids=["spark 3.5", "spark 4"])
def test_runs_a_job_on_all_workers_and_leaves_nothing(folder, tmp_path, python):
    with Cluster(2, python=python, memory="512m") as cluster:
        daemons = [cluster.master, *cluster.workers]
        assert cluster.alive_workers() == 2
        seen = drive(cluster, tmp_path)
        assert all(daemon.running() for daemon in daemons)
    assert {words[0].split(".")[0] for words in seen} == {"4" if python == SPARK4 else "3"}
    assert sorted((rows, address) for _, rows, address, _ in seen) == [("50", "127.0.0.1")] * 2
    assert len({where for *_, where in seen}) == 2
    assert all(Path(where).is_relative_to(folder) for *_, where in seen)
    assert [daemon.processes() for daemon in daemons] == [[], [], []]
    assert list(folder.iterdir()) == []


@contextlib.contextmanager
def busy(cluster: Cluster, folder: Path) -> Iterator[None]:
    """A driver whose executors run until the context ends."""
    # It will be killed, and what it leaves is to be in the folder.
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={folder}"}
    command = [cluster.python, "-c", WAITING, cluster.url]
    driver = Daemon("driver", command, os.environ | own, folder / "driver.log")
    try:
        assert until(lambda: all(worker.executors() for worker in cluster.workers), DEADLINE_S)
        yield
    finally:
        driver.kill()


def test_a_killed_worker_is_missed_and_the_rest_goes_on(tmp_path):
    with Cluster(2, memory="512m") as cluster, busy(cluster, tmp_path):
        first, second = cluster.workers
        (executor,) = first.executors()
        assert {first.pid, executor} <= set(first.processes())
        cluster.kill_worker(0)
        assert first.processes() == []
        assert not first.running()
        assert until(lambda: cluster.alive_workers() == 1, DEADLINE_S)
        assert second.running()
        assert second.executors()


def test_daemons_die_with_a_process_that_is_killed(tmp_path):
    program = (
        "import sys, time\n"
        "from spark_demo.cluster import Cluster\n"
        "with Cluster(1) as cluster:\n"
        "    print(cluster.master.pid, cluster.workers[0].pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    variables = os.environ | {"PYTHONPATH": str(ROOT / "examples"), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=variables, stdout=subprocess.PIPE, text=True
    ) as process:
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        process.send_signal(signal.SIGKILL)
    assert until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids), DEADLINE_S)


def test_each_daemon_can_be_on_a_host_of_its_own(tmp_path):
    if reason := Network.why_not():
        pytest.skip(reason)
    with Network(3) as network:
        master, *workers = [Host(h.address, h.namespace.wrap([])) for h in network.hosts]
        with Cluster(workers, master=master, memory="512m") as cluster:
            assert cluster.url.startswith(f"spark://{master.address}:")
            seen = drive(cluster, tmp_path, *master.prefix, SPARK_LOCAL_IP=master.address)
    assert sorted(address for _, _, address, _ in seen) == [w.address for w in workers]


def test_a_master_that_does_not_come_shows_the_end_of_its_log(folder):
    elsewhere = Host("192.0.2.1")  # Nobody's.
    with pytest.raises(ClusterError, match=r"(?s)master has ended.*Cannot assign"):
        Cluster(1, master=elsewhere).__enter__()
    assert list(folder.iterdir()) == []


def test_a_worker_that_does_not_come_shows_the_end_of_its_log(folder):
    with pytest.raises(ClusterError, match=r"(?s)1 workers have come: worker-0 has ended.*nowhere"):
        Cluster([Host(prefix=["env", "--chdir=/nowhere"])]).__enter__()
    assert list(folder.iterdir()) == []


def test_a_deadline_that_passes_is_told(folder):
    with pytest.raises(ClusterError, match="master has not come: within 0 s"):
        Cluster(1, start_seconds=0).__enter__()
    assert list(folder.iterdir()) == []


def test_a_python_without_spark_is_told_what_to_install():
    with pytest.raises(ClusterError, match="has no pyspark: pip install pyspark"):
        Cluster(1, python="/usr/bin/python3").__enter__()


def test_a_machine_without_java_is_told_so(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match="needs Java 17"):
        Cluster(1).__enter__()
