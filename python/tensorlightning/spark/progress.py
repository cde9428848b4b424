"""What a person sees in the driver: a live line per worker and one for all; else plain lines."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tensorlightning.launch import figures
from tensorlightning.spark.places import Place, Places

LIVE_SECONDS = 0.5
PLAIN_SECONDS = 5.0
FREE_ROWS = 8
_STATES = {"failed": "has failed", "done": "is done"}


def total(places: list[Place]) -> dict[str, Any]:
    """All workers as one: a report like theirs."""
    reports = [place.report for place in places]
    running = [place.report for place in places if place.state == "running"]
    losses = [report["loss"] for report in reports if figures.number(report, "loss") is not None]
    whole = {
        "step": sum(place.steps for place in places),
        "sent": sum(place.bytes for place in places),
        "dense": sum(figures.number(report, "dense") or 0.0 for report in reports),
    }
    rates = [figures.number(report, "steps_per_s") or 0.0 for report in running]
    whole |= {"steps_per_s": sum(rates)} if rates else {}
    return whole | ({"loss": sum(losses) / len(losses)} if losses else {})


def sentence(place: Place, silent: bool) -> str:
    """One worker: `rank 1 on host: epoch 0.52, step 120, loss 0.43, ...`."""
    state = "silent" if silent else place.state
    again = f", attempt {place.attempts}" if place.attempts > 1 else ""
    shown = f" {_STATES.get(state, f'is {state}')}" if state != "running" else ""
    far = f"epoch {place.epochs:.2f}, " if place.epochs else ""
    told = figures.sentence({**place.report, "step": place.steps})
    return f"rank {place.rank} on {place.host}{shown}{again}: {far}{told}"


class Progress:
    """Shows a job while it runs; a context manager. `look` is called as often as it refreshes."""

    def __init__(self, places: Places, lock: Any, look: Callable[[], None], shown: bool = True):
        self._places, self._lock, self._look = places, lock, look
        self._shown = shown
        self._ended = threading.Event()
        self._live = _live() if shown and sys.stderr.isatty() else None
        self._next_plain = time.monotonic() + PLAIN_SECONDS
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> "Progress":
        if self._live is not None:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        """No harm if it has ended, or was never begun."""
        if not self._thread.is_alive():
            return
        self._ended.set()
        self._thread.join()
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
        if self._shown and self._places.by_partition:
            self._say_all()

    def tell(self, text: str) -> None:
        """The same for people who want to see how it goes."""
        if self._shown:
            self.say(text)

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # Nobody listens any more.
            print(f"tensorlightning: {text}", file=sys.stderr, flush=True)

    def _run(self) -> None:
        while not self._ended.wait(LIVE_SECONDS):
            self._look()
            if not self._shown:
                continue
            with contextlib.suppress(OSError):  # Nobody looks any more.
                if self._live is not None:
                    self._live.update(self._table(), refresh=True)
                elif time.monotonic() >= self._next_plain:
                    self._next_plain = time.monotonic() + PLAIN_SECONDS
                    self._say_all()

    def _say_all(self) -> None:
        with self._lock:
            places = self._places.all()
            texts = [sentence(place, self._places.is_silent(place)) for place in places]
            together = figures.sentence(total(places))
            if not places and (gathering := self._places.gathering()):
                texts = [gathering]
        for text in texts:
            self.say(text)
        if len(places) > 1:
            self.say(f"all {len(places)} workers: {together}")

    def _table(self) -> Any:
        from rich.table import Table

        with self._lock:
            places = self._places.all()
            rows = [sentence(place, self._places.is_silent(place)) for place in places]
            together = figures.sentence(total(places))
        table = Table.grid()
        height = max(1, self._live.console.height - FREE_ROWS)
        for text in rows[:height]:
            table.add_row(text)
        if len(rows) > height:
            table.add_row("...")
        table.add_row(f"all {len(rows)} workers: {together}")
        return table


def _live() -> Any:
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        return None
    return Live(console=Console(stderr=True), auto_refresh=False, transient=True)
