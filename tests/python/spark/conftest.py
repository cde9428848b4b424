"""One Spark for all tests of a session: this process is the driver, local[2] the cluster."""

import os
import sys
import tempfile
import threading

import pytest
import tf_library

# A test that takes longer has its Spark jobs cancelled, and fails.
DEADLINE_S = 480.0
# Where executors find the package, and the models that tests have them build.
PATHS = [str(tf_library.ROOT / name) for name in ("python", "tests")]


def variables() -> dict[str, str]:
    """For drivers and executors."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(PATHS),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TL_TF_LIBRARY": str(tf_library.library()),
        "TL_PROGRAMS": str(tf_library.aggregator().parent),
    }


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory):
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        # The JVM, and hence its Python workers, have the environment of now.
        for name, value in variables().items():
            patch.setenv(name, value)
        session = (
            SparkSession.builder.master("local[2,4]")  # A task may fail three times.
            .appName("tests of TensorLightning")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def spark(shared_spark, no_settings_from_outside, monkeypatch, tmp_path_factory):
    """A session. Nothing that runs in it outlives the test."""
    # Snapshots of trainings that fail are kept, for a person.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    for name, value in variables().items():
        if name.startswith("TL_"):
            monkeypatch.setenv(name, value)
    late = threading.Timer(DEADLINE_S, shared_spark.sparkContext.cancelAllJobs)
    late.start()
    yield shared_spark
    late.cancel()
    shared_spark.sparkContext.cancelAllJobs()
