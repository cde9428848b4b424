"""tlrun as a process of a test, and everything that it has started, however well that hides.

    with Run("-np", "2", *worker("print('hello')")) as run:
        assert run.wait() == 0
        assert "[1] hello" in run.output()

A run marks its processes with a variable of its own: living() finds them all, by /proc.
"""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
import uuid
from collections.abc import Collection
from pathlib import Path

from cluster.wait import until

ROOT = Path(__file__).resolve().parent.parent.parent.parent
RUN_SECONDS = 60
END_SECONDS = 20
# An aggregator that is there, as far as tlrun knows: workers of these tests don't talk to it.
NO_AGGREGATOR = "--aggregator=127.0.0.1:9"
# What workers of tests have at hand; below, parts of them.
PRELUDE = """\
import json, os, signal, subprocess, sys, time
rank = int(os.environ["TL_RANK"])
def report(**fields):
    os.write(int(os.environ["TL_REPORT_FD"]), (json.dumps(fields) + "\\n").encode())
def say(*words):
    print(*words, flush=True)
"""

SLEEP = "say('ready'); time.sleep(600)"
WAIT = """
say("ready")
while not os.path.exists(sys.argv[1] + "/go"): time.sleep(0.02)
"""
# Neither its group, nor its session, nor its parent is that of the worker; nor are its pipes.
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
        time.sleep(600)
    os._exit(0)
os.wait()
subprocess.Popen(["sleep", "600"])
"""
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def worker(code: str, *arguments: str | Path) -> list[str]:
    """A command that runs this code in Python."""
    return [sys.executable, "-c", PRELUDE + code, *map(str, arguments)]


def finish(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of a run that ends by itself."""
    with Run(*arguments, **variables) as run:
        status = run.wait()
        assert run.leaves_nothing()
        return status, run.output(), run.errors()


def all_ready(run: "Run", workers: int) -> bool:
    return until(lambda: run.everything().count("ready") >= workers)


def _set_signals(ignored: Collection[int]) -> None:
    """Whatever pytest itself was told to ignore."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)


def environment_with(**variables: str) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TL_")}
    return clean | {"PYTHONPATH": str(ROOT / "python")} | variables


class Run:
    """A tlrun that runs, in a session of its own."""

    def __init__(
        self,
        *arguments: str,
        terminal: bool = False,
        folder: Path = ROOT,
        ignored: Collection[int] = (),
        **env: str,
    ):
        """ignored: signals that whoever starts it has turned off, as nohup does."""
        self._mark = f"TL_TEST_RUN={uuid.uuid4().hex}"
        name, value = self._mark.split("=")
        self._files = tempfile.TemporaryDirectory(prefix="tlrun-")
        self._screen = b""
        for name_of_file in ("out", "err"):
            self._path(name_of_file).touch()
        command = [sys.executable, "-m", "tensorlightning.launch", *arguments]
        options = {"cwd": folder, "env": environment_with(**{name: value}, **env)}
        if terminal:
            self._start_on_terminal(command, options)
        else:
            with self._path("out").open("wb") as out, self._path("err").open("wb") as err:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    preexec_fn=lambda: _set_signals(ignored),
                    **options,
                )

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing of it is left after the test, whatever the test has found."""
        deadline = time.monotonic() + END_SECONDS
        while (left := self.living()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        self._process.wait(END_SECONDS)
        self._files.cleanup()

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self) -> str:
        return self._path("out").read_text(errors="replace")

    def errors(self) -> str:
        """What it has written to stderr: its own words, and the workers' stderr."""
        return self._path("err").read_text(errors="replace")

    def screen(self) -> str:
        """What has come to its terminal."""
        return self._screen.decode(errors="replace")

    def wait(self, seconds: float = RUN_SECONDS) -> int:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"tlrun has not ended in time\n{self.everything()}") from None

    def says(self, text: str, seconds: float = RUN_SECONDS) -> bool:
        """Whether this comes up anywhere, in time."""
        until(lambda: text in self.everything() or self._process.poll() is not None, seconds)
        return text in self.everything()

    def everything(self) -> str:
        return self.screen() if self._screen else self.output() + self.errors()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def hang_up(self) -> None:
        """Its terminal is closed."""
        self._hung_up.set()
        self._reader.join(END_SECONDS)

    def living(self) -> dict[int, str]:
        """All processes that descend from it, zombies excepted, by their numbers."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                    found[int(folder.name)] = b" ".join(words).decode(errors="replace")
        return found

    def leaves_nothing(self, seconds: float = END_SECONDS) -> bool:
        return until(lambda: not self.living(), seconds)

    def _path(self, name: str) -> Path:
        return Path(self._files.name) / name

    def _start_on_terminal(self, command: list[str], options: dict) -> None:
        self._terminal, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (40, 120))

        def take_terminal() -> None:
            _set_signals(())
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,
            **options | {"env": options["env"] | {"TERM": "xterm-256color"}},
        )
        os.close(theirs)
        self._hung_up = threading.Event()
        self._reader = threading.Thread(target=self._read_terminal, daemon=True)
        self._reader.start()

    def _read_terminal(self) -> None:
        with contextlib.suppress(OSError):
            while not self._hung_up.is_set():
                if select.select([self._terminal], [], [], 0.05)[0]:
                    self._screen += os.read(self._terminal, 1 << 16)
        os.close(self._terminal)
