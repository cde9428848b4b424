"""The process that kills a worker that hangs: real processes, real signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from cluster.wait import until
from python.spark.living import runs
from tensorlightning.spark import guardian, task

SECONDS = 20.0
# A worker with a guardian that it feeds twenty times a second.
WORKER = """
import time
from tensorlightning.spark import task
guardian = task._start_guardian(1.0)
print(guardian.pid, flush=True)
while True:
    guardian.stdin.write(b".")
    time.sleep(0.05)
"""


def start_worker() -> tuple[subprocess.Popen, int]:
    path = Path(task.__file__).resolve().parents[2]
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(path)},
    )
    return worker, int(worker.stdout.readline())


def test_a_worker_that_is_stopped_is_killed():
    worker, pid = start_worker()
    with worker:
        worker.send_signal(signal.SIGSTOP)
        assert worker.wait(SECONDS) == -signal.SIGKILL
        assert f"worker {worker.pid} has hung" in worker.stderr.read()
    assert until(lambda: not runs(pid), SECONDS)


def test_it_ends_with_a_worker_that_was_killed():
    worker, pid = start_worker()
    with worker:
        worker.kill()
    assert until(lambda: not runs(pid), SECONDS)


def test_it_imports_next_to_nothing():
    text = Path(guardian.__file__).read_text()
    imported = {line.split()[1] for line in text.splitlines() if line.startswith("import ")}
    assert imported == {"os", "select", "signal", "sys"}, "one runs beside every worker"
