"""The Keras examples, as users run them: alone, and with tlrun."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tf_library

ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 240
SMALL = ["--epochs=1", "--samples=2000"]


def run(name: str, *arguments: str, workers: int = 0, options: tuple[str, ...] = ()) -> str:
    """What it has printed; with tlrun, if a number of workers is given."""
    launcher = [sys.executable, "-m", "tensorlightning.launch", "-np", str(workers), *options]
    program = [sys.executable, str(ROOT / "examples" / name), *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TL_")}
    ran = subprocess.run(
        [*(launcher if workers else []), *program],
        env=clean
        | {
            "PYTHONPATH": str(ROOT / "python"),
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


def test_a_cnn_learns_with_two_workers_and_is_saved(tmp_path):
    saved = tmp_path / "cnn.keras"
    output = run("keras_cnn.py", *SMALL, f"--save={saved}", workers=2)
    assert accuracy(output) > 40
    assert saved.stat().st_size > 10_000


def test_an_lstm_learns_with_two_workers():
    output = run("keras_lstm.py", "--epochs=1", "--samples=1000", workers=2)
    (bits,) = re.findall(r"([\d.]+) bits per letter", output)
    assert float(bits) < 6.3  # Of 7: a letter is one of 98 or so.


@pytest.mark.parametrize("arguments", [[], ["--gradients"]])
def test_a_loop_of_ones_own_learns_with_two_workers(arguments, tmp_path):
    summary = tmp_path / "summary.json"
    told = (f"--summary-json={summary}",)
    assert accuracy(run("custom_loop.py", *SMALL, *arguments, workers=2, options=told)) > 55
    # tlrun has heard of all steps, though nobody in Python counts them.
    reports = [worker["report"] for worker in json.loads(summary.read_text())["workers"]]
    assert [report["done"] for report in reports] == [True, True]
    # The last ones may come while another op has the worker.
    assert all(report["step"] >= 20 and report["sent"] > 0 for report in reports)


def test_without_a_launcher_there_is_one_worker():
    assert accuracy(run("custom_loop.py", *SMALL)) > 60
