"""tl-aggregator and tl-load as processes of a test.

    with Aggregator("--lease=5s") as aggregator:
        report = Load(aggregator, "--workers=4", "--steps=100", "--check").finish()
        assert aggregator.stop() == 0

Whatever a test forgets to end is killed when it is over, and everything with pytest itself, however
that ends. When a test fails, the logs of its processes are shown (conftest.py).
"""

import atexit
import functools
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

from cluster.wait import until

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 20
END_SECONDS = 60
RUN_SECONDS = 180
LOG_END_BYTES = 20_000

# Those that are not closed yet.
alive: list["Program"] = []


class ProgramError(AssertionError):
    """A program did not do what it was started for; with its log."""


@functools.cache
def folder_of_programs() -> Path:
    """Has Bazel build all tools, once, and says where they are.

    TL_TEST_PROGRAMS names a folder with others instead: of another configuration, say.
    """
    if given := os.environ.get("TL_TEST_PROGRAMS"):
        return Path(given)
    subprocess.run(
        ["bazel", "build", "--noshow_progress", "//comm/tools:all"], cwd=ROOT, check=True
    )
    # Not .bazel/bin: that follows whatever was built last, by anyone.
    where = ["bazel", "info", "bazel-bin"]
    shown = subprocess.run(where, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return Path(shown.stdout.strip()) / "comm/tools"


def command_of(name: str, *arguments: str) -> list[str | Path]:
    return [folder_of_programs() / name, *arguments]


def environment_with(**variables: str) -> dict[str, str]:
    """This process's environment with these variables, and without TL_* ones of its own."""
    return {k: v for k, v in os.environ.items() if not k.startswith("TL_")} | variables


def run(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """Runs a tool to its end: for --help, and for what it refuses to do."""
    return subprocess.run(
        command_of(name, *arguments),
        env=environment_with(**variables),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )


class Program:
    """A tool that runs. To be ended by stop(), kill() or close()."""

    def __init__(self, name: str, *arguments: str, **variables: str):
        self.name = name
        self._folder = tempfile.TemporaryDirectory(prefix=f"{name}-")
        self._kept_log = ""
        command = command_of(name, *arguments)
        if threading.current_thread() is threading.main_thread():
            # It ends with the thread that started it, even if that is killed.
            command = ["setpriv", "--pdeathsig", "KILL", "--", *command]
        with self.path("out").open("wb") as out, self.path("err").open("wb") as err:
            self._process = subprocess.Popen(
                command,
                env=environment_with(**variables),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                # Ctrl-C is for pytest, which then ends this.
                start_new_session=True,
            )
        alive.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def path(self, name: str) -> Path:
        """Of a file in the folder that goes with this process."""
        return Path(self._folder.name) / name

    def output(self) -> str:
        return self.path("out").read_text(errors="replace")

    def log(self) -> str:
        """What it has written to stderr; also after its end."""
        path = self.path("err")
        return path.read_text(errors="replace") if path.exists() else self._kept_log

    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float = RUN_SECONDS) -> int:
        """Its exit status, once it ends by itself."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.error(f"has not ended within {seconds:.0f} s") from None

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Without warning, as by kill -9; and waits until it is gone."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Ends it, if it runs, and frees its files."""
        if self not in alive:
            return
        alive.remove(self)
        self.kill()
        self._kept_log = self.log()
        self._folder.cleanup()

    def error(self, what: str) -> ProgramError:
        return ProgramError(f"{self.name} {what}; its log ends with\n{self.log()[-LOG_END_BYTES:]}")


class Aggregator(Program):
    """A tl-aggregator that listens, on a free port of 127.0.0.1 unless told otherwise."""

    def __init__(self, *flags: str, listen: str | Iterable[str] = "127.0.0.1:0", **variables: str):
        places = [listen] if isinstance(listen, str) else list(listen)
        super().__init__(
            "tl-aggregator", *(f"--listen={place}" for place in places), *flags, **variables
        )
        until(lambda: not self.running() or len(self._lines()) == len(places), START_SECONDS)
        if len(self._lines()) != len(places):
            self.kill()
            raise self.error("does not listen")
        # As workers write them: host:port, [::1]:port, unix:/path.
        self.endpoints = [line.split()[2] for line in self._lines()]

    @property
    def endpoint(self) -> str:
        return self.endpoints[0]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first place where it listens, for sockets."""
        host, port = self.endpoint.rsplit(":", 1)
        return host.strip("[]"), int(port)

    def stop(self) -> int:
        """By SIGTERM; its exit status."""
        self.terminate()
        return self.wait(END_SECONDS)

    def _lines(self) -> list[str]:
        lines = self.output().splitlines(keepends=True)
        return [line for line in lines if line.startswith("listening on ") and line.endswith("\n")]


Place = Aggregator | str | tuple[str, int]


def endpoint_of(place: Place) -> str:
    if isinstance(place, Aggregator):
        return place.endpoint
    return place if isinstance(place, str) else "{}:{}".format(*place)


class Load(Program):
    """A tl-load that runs, against one aggregator or the processes of a spread one."""

    def __init__(self, aggregators: Place | list[Place], *flags: str, **variables: str):
        places = aggregators if isinstance(aggregators, list) else [aggregators]
        where = ",".join(endpoint_of(place) for place in places)
        super().__init__("tl-load", f"--aggregator={where}", "--json=-", *flags, **variables)

    def has_joined(self) -> bool:
        """Whether all workers have, and the run has begun."""
        return "have joined\n" in self.log()

    def finish(self, seconds: float = RUN_SECONDS) -> dict:
        """Waits until it has ended well, and gives its report."""
        status = self.wait(seconds)
        if status != 0:
            raise self.error(f"has ended with status {status}")
        return self.report()

    def stop(self) -> dict:
        """Has it end early, but well."""
        self.terminate()
        return self.finish(END_SECONDS)

    def report(self) -> dict:
        """Also of one that has ended with 1."""
        return json.loads(self.output())


@atexit.register
def close_all() -> None:
    for program in alive:
        program.close()
