"""make demo-spark at small size: a real cluster, a table, a plot, and nothing left behind."""

import os
import subprocess
import sys

import caffe_stock
import pytest
import tf_library
from PIL import Image

DEADLINE_S = 900


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    plot = tmp_path_factory.mktemp("demo") / "demo.png"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TL_")}
    ours = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TL_TF_LIBRARY": str(tf_library.library()),
        "TL_PROGRAMS": str(tf_library.aggregator().parent),
    }
    if caffe_stock.PREFIX.exists():
        ours["TL_CAFFE_DRIVER"] = str(caffe_stock.driver())
    ran = subprocess.run(
        [
            sys.executable,
            str(tf_library.ROOT / "examples/spark_demo/demo.py"),
            "--quick",
            f"--plot={plot}",
        ],
        env=clean | ours,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout, plot


def row(printed: str, name: str) -> list[str]:
    (line,) = [line for line in printed.splitlines() if line.strip().startswith(f"{name}  ")]
    return line.strip().removeprefix(name).split()


def test_table_has_accuracy_time_and_bytes_of_all(shown):
    printed, _ = shown
    assert row(printed, "one worker")[0].endswith("%")
    *_, dense = row(printed, "2 workers, dense averaging")
    *_, moved, fewer = row(printed, "2 workers, TensorLightning")
    assert 0 < float(moved) < float(dense)
    assert float(fewer) == pytest.approx(float(dense) / float(moved), rel=0.2)


@caffe_stock.needed
def test_lenet_is_trained_too(shown):
    printed, _ = shown
    assert row(printed, "2 workers, LeNet in Caffe")[0].endswith("%")


def test_plot_is_drawn(shown):
    _, plot = shown
    assert Image.open(plot).size[0] > 1000
