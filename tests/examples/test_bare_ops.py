"""examples/bare_ops.py, as a user runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tf_library

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples/bare_ops.py"
DEADLINE_S = 240


def run(*command, **variables) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TL_")}
    ran = subprocess.run(
        [*map(str, command)],
        env=clean | {"TF_CPP_MIN_LOG_LEVEL": "2"} | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def distances(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"distance to the truth: ([\d.]+)", output)]


def test_it_imports_nothing_of_the_package():
    assert not re.search(r"^\s*(import|from) tensorlightning", EXAMPLE.read_text(), re.MULTILINE)


def test_one_worker_prunes_encodes_and_learns():
    output = run(sys.executable, EXAMPLE, "--library", tf_library.library())
    assert "10010 of 1000000 entries are kept" in output
    assert distances(output) == [pytest.approx(0, abs=0.01)]


def test_two_workers_learn_together():
    tlrun = [sys.executable, "-m", "tensorlightning.launch", "-np", "2"]
    output = run(
        *tlrun,
        *(sys.executable, EXAMPLE),
        PYTHONPATH=str(ROOT / "python"),
        TL_TF_LIBRARY=str(tf_library.library()),
        TL_PROGRAMS=str(tf_library.aggregator().parent),
    )
    found = distances(output)
    assert len(found) == 2
    assert max(found) < 0.5


def test_a_library_that_is_not_there_is_an_error_that_says_what_to_run(tmp_path):
    command = [sys.executable, str(EXAMPLE), f"--library={tmp_path / 'no.so'}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.returncode == 2
    assert "no.so is not there: run `make tf`" in ran.stderr
