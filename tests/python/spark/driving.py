"""driver.py as a process of its own, for tests that do something to it, or to its workers."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tf_library
from cluster.wait import until

DRIVER = Path(__file__).with_name("driver.py")
SECONDS = 420.0
ROWS, EPOCHS = 4000, 3


def environment(python: str = sys.executable) -> dict[str, str]:
    """For it and its executors."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TL_")}
    paths = [str(tf_library.ROOT / name) for name in ("python", "tests")]
    return clean | {
        "PYSPARK_PYTHON": python,
        "PYTHONPATH": os.pathsep.join(paths),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TL_TF_LIBRARY": str(tf_library.library()),
        "TL_PROGRAMS": str(tf_library.aggregator().parent),
    }


class Driver:
    """Two workers; what it says is read all the time."""

    def __init__(
        self,
        master: str,
        env: dict[str, str],
        *,
        popen: Callable[..., subprocess.Popen] = subprocess.Popen,
        more: Sequence[str] = (),
    ):
        self.places: dict[int, dict[str, Any]] = {}
        self.result: dict[str, Any] | None = None
        self.process = popen(
            [env["PYSPARK_PYTHON"], str(DRIVER), master, "2", *more],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._errors: queue.Queue[str] = queue.Queue()
        for target in (self._read, self._read_errors):
            threading.Thread(target=target, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            if "places" in said:
                self.places = {int(p): place for p, place in said["places"].items()}
            else:
                self.result = said

    def _read_errors(self) -> None:
        for line in self.process.stderr:
            self._errors.put(line)

    def has_begun(self, epochs: float = 0.0) -> bool:
        """Both train, and are that far."""
        return until(
            lambda: (
                len(self.places) == 2
                and all(p["steps"] > 40 and p["epochs"] >= epochs for p in self.places.values())
            ),
            SECONDS,
        )

    def finish(self) -> dict[str, Any]:
        status = self.process.wait(SECONDS)
        errors = "".join(self._errors.queue)
        assert status == 0, errors[-6000:]
        assert until(lambda: self.result is not None, 10), errors[-6000:]
        return self.result
