"""A process as an agent watches it: what it writes, cut into lines, and how far its end has come.

The end has three steps: the process itself exits; the rest of its group is told to go, and after a
while made to; what is still in its pipes is read. Only then is it said to have ended.
"""

import codecs
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence

from tensorlightning.launch.outbox import Outbox
from tensorlightning.launch.processes import Child
from tensorlightning.launch.protocol import MAX_OUTPUT_LINE, LineBuffer, decode

CHUNK_BYTES = 1 << 16
REPORT_BYTES = 1 << 16
# For pipes that a detached process keeps open after its group is gone.
DRAIN_SECONDS = 1.0
LEFTOVER_GRACE_SECONDS = 3.0


class LineText:
    """Bytes in, text of whole lines out; a line that is too long is cut."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> str:
        """With an empty `data`, at the end: also the line that has no end."""
        whole, newline, self._rest = (
            self._rest + self._decoder.decode(data, final=not data)
        ).rpartition("\n")
        if self._rest and (not data or len(self._rest) >= MAX_OUTPUT_LINE):
            whole, newline, self._rest = whole + newline + self._rest, "\n", ""
        return whole + newline


class Watched:
    """One process of an agent. Not yet ended until poll() says so."""

    def __init__(
        self,
        who: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        outbox: Outbox,
    ):
        self.who = who
        self._child = Child(command, environment, folder)
        self._outbox = outbox
        self._texts = {self._child.output: LineText(), self._child.errors: LineText()}
        self._reports = LineBuffer(REPORT_BYTES)
        self._open = {self._child.output, self._child.errors, self._child.report}
        for descriptor in self._open:
            os.set_blocking(descriptor, False)
        self._status: int | None = None
        self._kill_at = float("inf")
        self._drained_at = float("inf")
        self._told_to_end = False
        self._was_stopped = False

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_ending(self) -> bool:
        """Whether poll() has something to do soon, even if nothing more is heard of it."""
        return self._told_to_end or self._status is not None

    def readable(self) -> set[int]:
        """The descriptors from which more may be read now."""
        return (
            set(self._open)
            if self._outbox.has_room(self.who)
            else self._open & {self._child.report}
        )

    def read(self, descriptor: int) -> None:
        """What has come through one of its pipes goes to the outbox."""
        try:
            data = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._open.discard(descriptor)
        if descriptor == self._child.report:
            self._take_reports(data)
        elif text := self._texts[descriptor].feed(data):
            self._send_text(descriptor, text)

    def terminate(self, grace: float) -> None:
        """SIGTERM, and SIGKILL after the grace. A later call can only shorten it."""
        if not self._told_to_end:
            self._told_to_end = True
            self._child.signal(signal.SIGTERM)
        self._kill_at = min(self._kill_at, time.monotonic() + grace)

    def kill(self) -> None:
        self._told_to_end = True
        self._child.signal(signal.SIGKILL)

    def poll(self, patient: bool) -> bool:
        """Whether it has ended, with all of its group and all of its output.

        patient: wait for a slow reader of the output, rather than throw the rest of it away.
        """
        now = time.monotonic()
        if now >= self._kill_at:
            self._kill_at = now + 1.0
            self._child.signal(signal.SIGKILL)
        if self._status is None:
            self._status = self._child.exit_status()
            if self._status is None:
                return False
            self._was_stopped = self._told_to_end
        if not self._child.group_is_empty():
            self.terminate(LEFTOVER_GRACE_SECONDS)
            return False
        if self._open and not (patient and not self._outbox.has_room(self.who)):
            self._drained_at = min(self._drained_at, now + DRAIN_SECONDS)
            if now < self._drained_at:
                return False
        elif self._open:
            self._drained_at = float("inf")
            return False
        self._finish()
        return True

    def _finish(self) -> None:
        for descriptor, text in self._texts.items():
            if descriptor in self._open and (rest := text.feed(b"")):
                self._send_text(descriptor, rest)
        self._open.clear()
        self._child.reap()
        self._outbox.add_last(
            self.who,
            {
                "event": "ended",
                "who": self.who,
                "status": self._status,
                "stopped": self._was_stopped,
            },
        )

    def _send_text(self, descriptor: int, text: str) -> None:
        stream = "out" if descriptor == self._child.output else "err"
        self._outbox.add(
            self.who, {"event": "output", "who": self.who, "stream": stream, "text": text}
        )

    def _take_reports(self, data: bytes) -> None:
        # A last line without its end is a report, too.
        for line in self._reports.feed(data or b"\n"):
            with contextlib.suppress(ValueError):
                if (report := decode(line)) is not None:
                    message = {"event": "report", "who": self.who, "report": report}
                    self._outbox.add_report(self.who, message)
