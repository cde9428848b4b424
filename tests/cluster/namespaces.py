"""Network namespaces that are gone when their maker is: soon if it can, else by the next one.

A namespace's name, tl-<pid>-<start of that process>-<number>, says who made it. So anyone can tell
one in use from what a killed process left behind. The start is there because pids come again.
"""

import contextlib
import functools
import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

TOOLS = ("ip", "tc", "bridge", "ethtool")
KILL_SECONDS = 10
# What may pass at once after a pause. With less, a fast link does not reach its rate.
BURST_SECONDS = 0.005
MIN_BURST_BYTES = 16 << 10

_NAME = re.compile(r"tl-(\d+)-(\d+)-\d+")
_numbers = itertools.count()


class NetworkError(Exception):
    """What a tool said when it failed."""


def call(*command: object, stdin: str = "") -> str:
    """Runs a tool, and gives what it printed."""
    words = [str(word) for word in command]
    ran = subprocess.run(words, input=stdin, capture_output=True, text=True)
    if ran.returncode != 0:
        raise NetworkError(f"{' '.join(words)}: {(ran.stderr or ran.stdout).strip()}")
    return ran.stdout


class Namespace:
    """One namespace. Make it with create(), and call delete() whatever happens then."""

    def __init__(self, name: str | None = None):
        self.name = name or f"tl-{os.getpid()}-{start_of(os.getpid())}-{next(_numbers)}"

    def create(self) -> None:
        call("ip", "netns", "add", self.name)

    def delete(self) -> None:
        """Kills the processes in it and removes it; does nothing if it is not there."""
        with contextlib.suppress(NetworkError):
            self._kill()
        with contextlib.suppress(NetworkError):
            call("ip", "netns", "delete", self.name)
        if self.name in existing():
            raise NetworkError(f"namespace {self.name} can't be deleted")

    def ip(self, *lines: str) -> None:
        call("ip", "-n", self.name, "-batch", "-", stdin="\n".join(lines))

    def tc(self, arguments: str) -> None:
        call("tc", "-n", self.name, *arguments.split())

    def bridge(self, *lines: str) -> None:
        call("bridge", "-n", self.name, "-batch", "-", stdin="\n".join(lines))

    def sysctl(self, name: str, value: object) -> None:
        path = "/proc/sys/" + name.replace(".", "/")
        call(*self.wrap(["tee", path]), stdin=str(value))

    def no_offloads(self, device: str) -> None:
        """Has a device handle frames as a cable would, one by one: it then counts every header."""
        call(*self.wrap(["ethtool", "-K", device, "tso", "off", "gso", "off", "gro", "off"]))

    def limit(self, device: str, bits_per_s: float, queue_ms: float) -> None:
        """Limits what a device sends; 0 takes the limit away."""
        if bits_per_s:
            burst = max(MIN_BURST_BYTES, int(bits_per_s / 8 * BURST_SECONDS))
            tbf = f"tbf rate {bits_per_s:.0f}bit burst {burst} latency {queue_ms}ms"
            self.tc(f"qdisc replace dev {device} root {tbf}")
        else:
            with contextlib.suppress(NetworkError):  # There may be none to take away.
                self.tc(f"qdisc delete dev {device} root")

    def wrap(self, command: Sequence[object]) -> list[str]:
        """The command that runs a command inside."""
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def pids(self) -> list[int]:
        return [int(pid) for pid in call("ip", "netns", "pids", self.name).split()]

    def _kill(self) -> None:
        # Again and again, for a process may have forked before it died.
        deadline = time.monotonic() + KILL_SECONDS
        while (pids := self.pids()) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def remove_leftovers() -> None:
    """Removes the namespaces, and what runs in them, of processes that are no more."""
    for name in existing():
        match = _NAME.fullmatch(name)
        if match and start_of(int(match[1])) != int(match[2]):
            Namespace(name).delete()


@functools.cache
def why_not() -> str | None:
    """Why namespaces can't be used here; None if they can. For pytest.mark.skipif."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        return f"not installed: {', '.join(missing)}"
    probe = Namespace()
    try:
        probe.create()
        probe.ip("link add bridge type bridge", "link add veth0 type veth peer veth1")
        probe.ip("tuntap add tap0 mode tap")
        probe.tc("qdisc add dev veth0 root tbf rate 1mbit burst 10kb limit 10kb")
    except NetworkError as error:
        return f"network namespaces are refused here: {error}"
    finally:
        probe.delete()
    return None


def existing() -> list[str]:
    """Names of all namespaces of this machine, also of others'."""
    folder = Path("/var/run/netns")
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def start_of(pid: int) -> int | None:
    """When a process began, in ticks since boot; None if there is none, or only its zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field, the command in brackets, may hold anything; the third is the state.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
