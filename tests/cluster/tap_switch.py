"""The userspace switch of tap_switch.cc: builds it, runs it, and gives it its commands."""

import contextlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cluster.namespaces import NetworkError

ROOT = Path(__file__).resolve().parent.parent.parent
END_SECONDS = 10


def build() -> Path:
    """Has Bazel build the program, and says where it is."""
    flags = ["-c", "opt", "--noshow_progress"]
    subprocess.run(["bazel", "build", *flags, "//tests/cluster:tap_switch"], cwd=ROOT, check=True)
    # Not .bazel/bin: that follows whatever was built last, by anyone.
    where = ["bazel", "info", *flags, "bazel-bin"]
    shown = subprocess.run(where, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return Path(shown.stdout.strip()) / "tests/cluster/tap_switch"


class TapSwitch:
    """Joins the TAPs of namespaces; port n is that of the n-th namespace.

    The switch ends when its input does. So it ends with this process, however this one ends.
    """

    def __init__(self, program: Path, namespaces: Sequence[str], **options: object):
        arguments = [f"--{name}={value}" for name, value in options.items()]
        self._process = subprocess.Popen(
            [program, *arguments, *namespaces],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is for this process; the switch must carry frames until we say so.
            start_new_session=True,
        )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def counters(self) -> list[dict[str, int]]:
        """Frames of each port: received from the host; delivered to it, lost, dropped."""
        return self._ask("counters")

    def set_rate(self, port: int, bits_per_s: float) -> None:
        self._ask(f"rate {port} {bits_per_s}")

    def cut(self, port: int) -> None:
        self._ask(f"cut {port}")

    def mend(self, port: int) -> None:
        self._ask(f"mend {port}")

    def close(self) -> None:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.communicate(timeout=END_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()

    def _ask(self, command: str) -> list[dict[str, int]]:
        with contextlib.suppress(BrokenPipeError):  # The answer says the same, and why.
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[dict[str, int]]:
        line = self._process.stdout.readline()
        if not line:
            raise NetworkError(f"the switch has ended with status {self._process.wait()}")
        return json.loads(line)
