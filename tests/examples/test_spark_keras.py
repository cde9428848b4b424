"""Spark's examples with Keras, as users run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import tf_library

ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 600


def run(name: str, *arguments: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TL_")}
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), "--quick", *arguments],
        env=clean
        | {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT / "python"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TL_TF_LIBRARY": str(tf_library.library()),
            "TL_PROGRAMS": str(tf_library.aggregator().parent),
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def accuracy(output: str) -> float:
    (found,) = re.findall(r"test accuracy ([\d.]+)%", output)
    return float(found)


def test_a_cnn_learns_from_a_dataframe_and_is_saved(tmp_path):
    saved = tmp_path / "cnn.keras"
    output = run("spark_keras.py", f"--save={saved}")
    assert accuracy(output) > 40
    assert "2 workers, 4000 images" in output
    assert saved.stat().st_size > 10_000


def test_a_network_learns_as_a_stage_of_a_pipeline(tmp_path):
    output = run("spark_pipeline.py", f"--save={tmp_path / 'saved'}")
    assert accuracy(output) > 60
    assert (tmp_path / "saved" / "stages").is_dir()


def test_a_model_learns_from_the_partitions_of_an_rdd():
    output = run("spark_map_partitions.py")
    assert accuracy(output) > 60
    assert sorted(re.findall(r"rank (\d): (\d+) steps, (\d+) images", output))[0][0] == "0"
    assert sum(map(int, re.findall(r"(\d+) images", output))) == 4000
