"""Processes and all that descends from them: starting, finding, ending them.

A child is a session and a process group of its own, and dies with the thread that started it
(PR_SET_PDEATHSIG): start children from the main thread of a process that has only one. A child that
has ended stays a zombie until reap(), so that its number can't be given to another process while
somebody may still send it a signal.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Descendants whose parents are gone become this process's children, however they detach."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True)
class Entry:
    """A line of the process table."""

    pid: int
    parent: int
    group: int
    is_zombie: bool


def process_table() -> list[Entry]:
    entries = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):
            # The command's name, in parentheses, may hold anything, parentheses too.
            text = (folder / "stat").read_text(errors="replace")
            state, parent, group = text.rpartition(")")[2].split()[:3]
            entries.append(Entry(int(folder.name), int(parent), int(group), state in "ZX"))
    return entries


def descendants(of: int) -> list[Entry]:
    """Children, their children, and so on; zombies too."""
    children: dict[int, list[Entry]] = {}
    for entry in process_table():
        children.setdefault(entry.parent, []).append(entry)
    found, waiting = [], [of]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += [entry.pid for entry in below]
    return found


def signal_process(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        if number == signal.SIGTERM:
            os.killpg(group, signal.SIGCONT)  # One that is stopped could not obey.


class Child:
    """A process that was started, with pipes for what it writes and for what it reports."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: str):
        me = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != me:
                os._exit(1)

        self.report, their_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                command,
                env={**environment, "TL_REPORT_FD": str(their_end)},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=[their_end],
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        except BaseException:
            os.close(self.report)
            raise
        finally:
            os.close(their_end)
        self.pid = self._process.pid
        self.output = self._process.stdout.fileno()
        self.errors = self._process.stderr.fileno()

    def exit_status(self) -> int | None:
        """As a shell's $?: 128 + n after signal n. None while it runs."""
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        is_signal = found.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
        return 128 + found.si_status if is_signal else found.si_status

    def signal(self, number: int) -> None:
        """To it and to its whole group."""
        signal_group(self.pid, number)

    def group_is_empty(self) -> bool:
        """Whether nobody of its group lives (it may be a zombie itself)."""
        return all(e.is_zombie for e in process_table() if e.group == self.pid)

    def reap(self) -> None:
        """To be called when it has ended."""
        self._process.wait()
        self._process.stdout.close()
        self._process.stderr.close()
        os.close(self.report)


def reap_adopted(known: set[int]) -> None:
    """Buries zombies that are children of this process, but none of the known ones."""
    me = os.getpid()
    for entry in process_table():
        if entry.is_zombie and entry.parent == me and entry.pid not in known:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(entry.pid, os.WNOHANG)
