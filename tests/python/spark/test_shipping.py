"""What a cluster must have: TensorFlow and pyarrow. TensorLightning itself goes there with the job.

Drivers and executors have Pythons of their own: venvs that borrow TensorFlow, Arrow and Spark from
the venv that runs the tests (a .pth), and have no TensorLightning.
"""

import contextlib
import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from spark_demo.cluster import Cluster
from tensorlightning import _files
from tensorlightning.spark import shipping
from tf_library import ROOT

DEADLINE_S = 480
SPARK4 = ROOT / ".venv-spark4/bin/python"

# Workers meet at the driver's aggregator, average, and say where they are.
DRIVER = """
import json, sys
from pyspark.sql import SparkSession
import tensorlightning as tl

def train():
    import numpy as np, keras
    import tensorlightning as tl
    from tensorlightning import _library

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.full((8, 4), tl.rank(), "float32")
    model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0, callbacks=[tl.Elastic(period=1)])
    return {
        "rank": tl.rank(),
        "size": tl.size(),
        "python": sys.prefix,
        "package": tl.__file__,
        "library": str(_library.path()),
    }

spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
found = tl.spark.run(train, num_proc=int(sys.argv[1]), progress=False)
print(json.dumps({"spark": spark.version, "package": tl.__file__, "workers": found}))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """A venv without TensorLightning, and without anything else of its own."""
    return make_venv(tmp_path_factory.mktemp("bare") / "venv", sysconfig.get_path("purelib"))


def make_venv(folder: Path, *lenders: str) -> Path:
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # Not as lines that name folders: venv-pack takes these for packages that are not its to pack.
    (site / "lent.pth").write_text(f"import sys; sys.path += {list(lenders)}\n")
    return folder


def clean(**variables: str) -> dict[str, str]:
    """An environment in which nothing of this clone is found."""
    hidden = ("TL_", "PYTHON", "SPARK_", "PYSPARK_", "VIRTUAL_ENV")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    return kept | {"TF_CPP_MIN_LOG_LEVEL": "2"} | variables


@contextlib.contextmanager
def started(workers: int, python: Path) -> Iterator[Cluster]:
    """A cluster whose daemons, and hence executors, find nothing of this clone either."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - clean().keys():
            patch.delenv(name)
        with Cluster(workers, python=python, memory="512m") as cluster:
            yield cluster


def submit(cluster: Cluster, folder: Path, *options: object, **variables: str) -> dict:
    """What a driver prints; it and its executors run in the cluster's Python unless told."""
    (folder / "driver.py").write_text(DRIVER)
    settings = ["spark.executor.memory=512m", "spark.ui.enabled=false"]
    ran = subprocess.run(
        [
            *(cluster.spark_home / "bin/spark-submit", "--master", cluster.url),
            *(word for setting in settings for word in ("--conf", setting)),
            *(*map(str, options), "driver.py", str(len(cluster.workers))),
        ],
        cwd=folder,
        env=clean(
            **{
                "PYSPARK_DRIVER_PYTHON": cluster.python,
                "PYSPARK_PYTHON": cluster.python,
                "SPARK_LOCAL_DIRS": str(folder),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "TMPDIR": str(folder),
            }
            | variables,
        ),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}{cluster.workers[0].log()}"
    return json.loads(ran.stdout.splitlines()[-1])


def test_a_wheel_in_py_files_is_enough(wheel, bare, tmp_path):
    with started(2, bare / "bin/python") as cluster:
        told = submit(cluster, tmp_path, "--py-files", wheel)
    assert told["spark"].startswith("3.5.")
    assert told["package"].startswith(str(wheel))
    assert [(worker["rank"], worker["size"]) for worker in told["workers"]] == [(0, 2), (1, 2)]
    for worker in told["workers"]:
        assert worker["python"] == str(bare)
        assert f"{wheel.stem}.zip/tensorlightning/" in worker["package"]
        assert worker["library"].endswith("/libtensorlightning_tf.so")


def test_a_wheel_in_py_files_is_enough_for_spark_4(wheel, tmp_path):
    lender = subprocess.run(
        [SPARK4, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )
    own = make_venv(tmp_path / "venv", lender.stdout.strip(), sysconfig.get_path("purelib"))
    with started(1, own / "bin/python") as cluster:
        told = submit(cluster, tmp_path, "--py-files", wheel)
    assert told["spark"].startswith("4.")
    (worker,) = told["workers"]
    assert f"{wheel.stem}.zip/tensorlightning/" in worker["package"]


def test_a_packed_venv_in_archives_is_enough(wheel, bare, tmp_path):
    own = make_venv(tmp_path / "venv", sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", f"--python={own / 'bin/python'}", "install", "--no-index"]
    packer = [sys.executable, "-m", "venv_pack", f"--prefix={own}", "--output=environment.tar.gz"]
    for command in ([*pip, "--no-deps", "--disable-pip-version-check", str(wheel)], packer):
        ran = subprocess.run(
            command, cwd=tmp_path, env=clean(), capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
    with started(1, bare / "bin/python") as cluster:
        told = submit(
            cluster,
            tmp_path,
            *("--archives", "environment.tar.gz#environment"),
            PYSPARK_DRIVER_PYTHON=str(own / "bin/python"),
            PYSPARK_PYTHON="./environment/bin/python",
        )
    (worker,) = told["workers"]
    assert worker["python"].endswith("/environment")
    assert worker["package"].startswith(worker["python"])
    assert worker["library"].startswith(worker["python"])


def test_spark_is_asked_to_send_an_archive_only_once_and_nothing_that_is_installed(monkeypatch):
    class Context:
        def __init__(self):
            self.listFiles: list[str] = []

        def addPyFile(self, path: str) -> None:  # noqa: N802
            self.listFiles.append(f"spark://127.0.0.1:1234/files/{Path(path).name}")

    context = Context()
    shipping.ship(context)
    assert context.listFiles == []
    archive = Path("/somewhere/tensorlightning-1.zip")
    monkeypatch.setattr(_files, "archive", lambda: archive)
    shipping.ship(context)
    shipping.ship(context)
    assert [Path(added).name for added in context.listFiles] == ["tensorlightning-1.zip"]
