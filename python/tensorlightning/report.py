"""Lines of JSON for the launcher, through the pipe TL_REPORT_FD: at most two a second."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

SECONDS_BETWEEN = 0.5
_LONGEST_LINE = 4096  # What a pipe takes in one piece.


class Reporter:
    """Says how a training goes to whoever started this process; to nobody if there is no pipe."""

    def __init__(self) -> None:
        self._pipe = _pipe()
        self._next = 0.0
        self._steps = 0
        self._rate_steps, self._rate_time = 0, time.monotonic()

    def step(
        self, steps: int, logs: Mapping[str, Any] | None, statistics: Callable[[], dict[str, Any]]
    ) -> None:
        """After so many more steps; `statistics` is asked only when a line is due."""
        self._steps += steps
        if self._pipe is not None and time.monotonic() >= self._next:
            self._send(logs, statistics(), done=False)

    def finish(self, logs: Mapping[str, Any] | None, statistics: dict[str, Any]) -> None:
        """The last line."""
        if self._pipe is not None:
            self._send(logs, statistics, done=True)

    def _send(self, logs: Mapping[str, Any] | None, statistics: dict[str, Any], done: bool) -> None:
        now = time.monotonic()
        self._next = now + SECONDS_BETWEEN
        line = {"step": self._steps, "done": done}
        if now > self._rate_time and self._steps > self._rate_steps:
            rate = (self._steps - self._rate_steps) / (now - self._rate_time)
            line["steps_per_s"] = round(rate, 2)
        self._rate_steps, self._rate_time = self._steps, now
        line |= _of_logs(logs or {}) | statistics_by_name(statistics)
        text = (json.dumps(line) + "\n").encode()
        if len(text) > _LONGEST_LINE:
            line.pop("metrics", None)
            text = (json.dumps(line) + "\n").encode()
        try:
            os.write(self._pipe, text)
        except BlockingIOError:
            pass  # The launcher is slow: training is not.
        except OSError:
            self._pipe = None


def _pipe() -> int | None:
    text = os.environ.get("TL_REPORT_FD", "")
    if not text.isdigit():
        return None
    with contextlib.suppress(OSError):
        os.set_inheritable(int(text), False)
        os.set_blocking(int(text), False)
        return int(text)
    return None


def _of_logs(logs: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {}
    for name, value in logs.items():
        with contextlib.suppress(TypeError, ValueError):
            number = float(value)
            # JSON has no NaN.
            numbers[name] = number if abs(number) < float("inf") else None
    loss = {"loss": numbers.pop("loss")} if "loss" in numbers else {}
    return loss | ({"metrics": numbers} if numbers else {})


_NAMES = {
    "bytes_sent": "sent",
    "bytes_received": "received",
    "dense_bytes": "dense",
    "exchanges": "exchanges",
    "staleness": "staleness",
    "density": "density",
    "live": "live",
    "policy": "policy",
}


def statistics_by_name(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """As reports name them: what a launcher, or a driver, shows."""
    return {ours: statistics[name] for name, ours in _NAMES.items() if name in statistics}
