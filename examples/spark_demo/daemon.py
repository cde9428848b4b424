"""A process that runs in the background until it is killed, with all that descends from it."""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

KILL_SECONDS = 20.0
LOG_END_BYTES = 4000
EXECUTOR = "CoarseGrainedExecutorBackend"
PR_SET_PDEATHSIG = 1


class Daemon:
    """A session of its own: whoever descends from it is in it, even after its parents have gone.

    It dies with the thread that started it, unless that is not the main one.
    """

    def __init__(self, name: str, command: Sequence[str], variables: Mapping[str, str], log: Path):
        self.name, self._log = name, log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=dict(variables),
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent(),
            )
        self.pid = self._process.pid

    def running(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        """The end of what it has written."""
        return self._log.read_bytes()[-LOG_END_BYTES:].decode(errors="replace")

    def processes(self) -> list[int]:
        """It and its descendants."""
        return [pid for pid, session in _sessions() if session == self.pid]

    def executors(self) -> list[int]:
        """The executors of Spark among them."""
        return [pid for pid in self.processes() if EXECUTOR in _command_of(pid)]

    def kill(self) -> None:
        """With all its descendants, at once, as when a machine loses its power."""
        deadline = time.monotonic() + KILL_SECONDS
        # Again and again, for a process may have forked before it died.
        while pids := self.processes():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} can't be ended: there are still processes {pids}")
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_SECONDS)
            time.sleep(0.02)


def _die_with_parent() -> Callable[[], None] | None:
    if threading.current_thread() is not threading.main_thread():
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask_the_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask_the_kernel


def _sessions() -> Iterator[tuple[int, int]]:
    """Of all processes but zombies: number and session."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # The command's name, in parentheses, may hold anything, parentheses too.
            text = (folder / "stat").read_text(errors="replace").rpartition(")")[2]
            state, _, _, session = text.split()[:4]
            if state not in "ZX":
                yield int(folder.name), int(session)


def _command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""
