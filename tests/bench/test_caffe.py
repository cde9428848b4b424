"""That the benchmark of Caffe measures everything; how good anything is does not matter here."""

import json
import math
import os
import subprocess
import sys

import caffe_stock
import pytest
from caffe_workers import curve_of, seconds_of

pytestmark = caffe_stock.needed
TARGETS = {
    "bytes_vs_dense_easgd": 50,
    "accuracy_behind_dense": 0.5,
    "accuracy_behind_one": 0.5,
    "speed_vs_silent": 0.9,
}
LOG = """\
I1116 23:59:58.500000  7 caffe.cpp:239] Starting Optimization
I1116 23:59:58.600000  7 solver.cpp:347] Iteration 0, Testing net (#0)
I1116 23:59:59.000000  7 solver.cpp:414]     Test net output #0: accuracy = 0.1
I1116 00:00:00.250000  7 solver.cpp:347] Iteration 40, Testing net (#0)
I1116 00:00:01.500000  7 solver.cpp:414]     Test net output #0: accuracy = 0.875
"""


def run(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(caffe_stock.ROOT / "bench/caffe.py"), *arguments]
    environment = os.environ | caffe_stock.environment()
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_a_quick_run_has_every_ratio(tmp_path):
    path = tmp_path / "caffe.json"
    ran = run("--quick", f"--json={path}")
    assert ran.returncode == 0, ran.stderr
    results = json.loads(path.read_text())
    assert results["targets"] == TARGETS
    assert all(math.isfinite(value) for value in results["ratios"].values())
    assert set(results["ratios"]) == set(TARGETS)
    assert results["ratios"]["bytes_vs_dense_easgd"] > 1
    for name, iterations in (("one", 80), ("dense", 40), ("elastic", 40)):
        (outcome,) = results["runs"][name]
        assert outcome["curve"][-1][0] == iterations
    assert results["runs"]["one"][0]["bytes"] == 0 < results["runs"]["elastic"][0]["bytes"]


def test_logs_tell_accuracies_and_times_also_at_midnight():
    assert [(point.iteration, point.value) for point in curve_of(LOG)] == [(0, 10), (40, 87.5)]
    assert seconds_of([LOG]) == pytest.approx(3.0)


def test_without_a_plugin_it_says_what_to_run(tmp_path):
    environment = os.environ | {"TL_CAFFE_PLUGIN": str(tmp_path / "none.so")}
    command = [sys.executable, str(caffe_stock.ROOT / "bench/caffe.py"), "--quick"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "names no file" in ran.stderr
    assert "Traceback" not in ran.stderr
