"""What a person sees while a job runs.

On a terminal: the workers' output scrolls by, each line with its rank in a colour, above one live
line per worker (live_display.py). Elsewhere (a file, a pipe, CI), here: the same output with the
rank before each line, each stream where the worker wrote it; tlrun's own words, reports among them,
go to stderr, and reports of one worker come at most once in a while.
"""

import io
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from tensorlightning.launch import figures, summary
from tensorlightning.launch.job import Worker


class OutputClosedError(Exception):
    """Nobody reads our output any more, as in `tlrun ... | head`."""


class Display:
    """Plain text; also the base of the live display."""

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        prefix: bool = True,
        quiet: bool = False,
        report_every: float = 5.0,
        folder: Path | None = None,
    ):
        """folder: where to keep each worker's output in files of its own, too."""
        self.workers = workers
        self.prefix = prefix
        self.quiet = quiet
        self._report_every = report_every
        self._reported_at: dict[int, float] = {}
        self._folder = folder

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def output(self, who: int | str, stream: str, text: str) -> None:
        """Whole lines of a worker, or of the aggregator."""
        if self._folder:
            with (self._folder / f"{who}.{stream}").open("a", errors="replace") as file:
                file.write(text)
        self.show_lines(
            who, stream, [_as_seen(line) for line in text.removesuffix("\n").split("\n")]
        )

    def say(self, text: str, *, bad: bool = False) -> None:
        """tlrun's own words. A quiet one only says what went wrong."""
        if bad or not self.quiet:
            for line in text.splitlines():
                self.show_words(f"tlrun: {line}", bad)

    def report(self, worker: Worker) -> None:
        """A worker's report has changed."""
        now = time.monotonic()
        due = self._reported_at.get(worker.rank, float("-inf")) + self._report_every
        if self.quiet or (now < due and not worker.report.get("done")):
            return
        if text := figures.sentence(worker.report):
            self._reported_at[worker.rank] = now
            self.show_words(f"tlrun: [{worker.rank}] {text}", False)

    def refresh(self) -> None:
        """Called a few times a second."""

    def summary(self) -> None:
        if not self.quiet:
            _write(sys.stderr, f"\n{summary.plain_table(self.workers)}\n")

    def show_lines(self, who: int | str, stream: str, lines: list[str]) -> None:
        start = f"[{who}] " if self.prefix else ""
        where = sys.stdout if stream == "out" else sys.stderr
        _write(where, "".join(f"{start}{line}\n" for line in lines))

    def show_words(self, text: str, bad: bool) -> None:
        _write(sys.stderr, text + "\n")


def make_display(workers: Sequence[Worker], **options: object) -> Display:
    """Live if a person watches, and rich is there."""
    if sys.stdout.isatty() and sys.stderr.isatty():
        try:
            from tensorlightning.launch.live_display import LiveDisplay
        except ImportError:
            pass
        else:
            return LiveDisplay(workers, **options)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return Display(workers, **options)


def _as_seen(line: str) -> str:
    """A progress bar rewrites its line: what is left of it is what comes after the last return."""
    return line.rstrip("\r").rpartition("\r")[2]


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        raise OutputClosedError from error
