"""Workers as processes, without the price of importing TensorFlow for each of them.

One process imports it, and forks a worker whenever it is asked to: a real process, with its own
environment, signals, log and exit. What it does is a function of scenarios.py; what that returns is
the worker's result.

    with nursery.start("train", {"policy": "local"}, TL_RANK="1") as worker:
        assert worker.wait() == 0
        print(worker.result())
"""

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cluster.wait import until

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 120
END_SECONDS = 90
PR_SET_PDEATHSIG = 1


class Worker:
    """A process that runs, or has."""

    def __init__(self, pid: int, folder: Path, name: str):
        self.pid, self._folder, self._name = pid, folder, name

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: Any) -> None:
        self.kill()

    def running(self) -> bool:
        return not self._path("status").exists()

    def wait(self, seconds: float = END_SECONDS) -> int:
        """Its exit status, or minus the signal that ended it."""
        if not until(lambda: not self.running(), seconds):
            raise AssertionError(f"{self._name} has not ended within {seconds} s:\n{self.log()}")
        return int(self._path("status").read_text())

    def finish(self, seconds: float = END_SECONDS) -> Any:
        """What its function has returned, once it has ended well."""
        status = self.wait(seconds)
        assert status == 0, f"{self._name} has ended with {status}:\n{self.log()}"
        return json.loads(self._path("result").read_text())

    def has_said(self, text: str, seconds: float = END_SECONDS) -> bool:
        """Waits until this is in its log, or it has ended."""
        until(lambda: text in self.log() or not self.running(), seconds)
        return text in self.log()

    def log(self) -> str:
        return self._path("log").read_text(errors="replace")[-8000:]

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.running():
                os.kill(self.pid, number)

    def kill(self) -> None:
        if self.running():
            self.send(signal.SIGKILL)
            self.wait()

    def _path(self, name: str) -> Path:
        return self._folder / name


class Nursery:
    """Forks workers; those that a test forgets are killed by end_all()."""

    def __init__(self, library: Path):
        self._folder = tempfile.TemporaryDirectory(prefix="nursery-")
        self._workers: list[Worker] = []
        paths = os.pathsep.join(str(ROOT / name) for name in ("python", "tests", "tests/python"))
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("TL_")}
            | {
                "PYTHONPATH": paths,
                "TF_CPP_MIN_LOG_LEVEL": "2",
                "TL_TF_LIBRARY": str(library),
            },
            start_new_session=True,
        )

    def start(self, function: str, arguments: dict[str, Any] | None = None, **variables: str):
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        order = {
            "function": function,
            "arguments": arguments or {},
            "variables": variables,
            "folder": str(folder),
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], START_SECONDS)[0]:
            raise AssertionError(f"no worker was forked within {START_SECONDS} s")
        worker = Worker(int(self._process.stdout.readline()), folder, f"worker {function}")
        self._workers.append(worker)
        return worker

    def fleet(
        self, function: str, arguments: dict[str, Any] | None = None, *, size: int, **variables: str
    ) -> list[Worker]:
        """Workers of one job, ranks 0 to size - 1."""
        return [
            self.start(function, arguments, TL_RANK=str(rank), TL_SIZE=str(size), **variables)
            for rank in range(size)
        ]

    def end_all(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    def logs(self) -> list[tuple[str, str]]:
        return [(f"log of process {worker.pid}", worker.log()) for worker in self._workers]

    def close(self) -> None:
        self.end_all()
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._folder.cleanup()


# ---- The process that forks. ---------------------------------------------------------------------


def _become(order: dict[str, Any]) -> None:
    """In the child: a process like any other."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # What runs in the background of a shell ignores Ctrl-C; a user's program does not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = os.open(Path(order["folder"]) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, file in ((0, nothing), (1, log), (2, log)):
        os.dup2(file, number)
    os.environ.update(order["variables"])
    scenario = getattr(importlib.import_module("scenarios"), order["function"])
    result = scenario(**order["arguments"])
    (Path(order["folder"]) / "result").write_text(json.dumps(result))


def _reap(folders: dict[int, Path]) -> None:
    while folders:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        folder = folders.pop(pid)
        (folder / "draft").write_text(str(os.waitstatus_to_exitcode(status)))
        (folder / "draft").rename(folder / "status")


def _serve() -> None:
    # Nothing of TensorFlow may run before a fork: its threads would not be in the child.
    import keras  # noqa: F401
    import tensorflow  # noqa: F401
    import tensorlightning  # noqa: F401

    folders: dict[int, Path] = {}
    os.set_blocking(0, False)
    text = b""
    while True:
        _reap(folders)
        if select.select([0], [], [], 0.02)[0]:
            piece = os.read(0, 65536)
            if not piece:
                break
            text += piece
        while b"\n" in text:
            line, text = text.split(b"\n", 1)
            order = json.loads(line)
            (Path(order["folder"]) / "log").touch()
            pid = os.fork()
            if pid == 0:
                _become(order)
                return
            folders[pid] = Path(order["folder"])
            print(pid, flush=True)
    for pid in folders:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _serve()
