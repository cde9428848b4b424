"""One live line per worker under the scrolling output, for a person at a terminal."""

import contextlib
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tensorlightning.launch import figures, summary
from tensorlightning.launch.display import Display, OutputClosedError
from tensorlightning.launch.job import Worker

COLOURS = (
    "cyan",
    "green",
    "yellow",
    "magenta",
    "blue",
    "bright_cyan",
    "bright_green",
    "bright_blue",
)
STATES = {"failed": "red", "stopped": "red", "restarting": "yellow", "done": "green"}
# Rows that stay free for what scrolls by.
FREE_ROWS = 8
GAP = 2


def colour_of(who: int | str) -> str:
    return COLOURS[who % len(COLOURS)] if isinstance(who, int) else "bright_black"


class LiveDisplay(Display):
    """Redraws only in refresh(): one thread, and no flicker from a chatty worker."""

    def __init__(self, workers: Sequence[Worker], **options: object):
        super().__init__(workers, **options)
        self._console = Console(highlight=False, soft_wrap=True)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def __enter__(self) -> "LiveDisplay":
        if not self.quiet:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The terminal may be gone.
        with contextlib.suppress(OSError):
            self._live.stop()

    def show_lines(self, who: int | str, stream: str, lines: list[str]) -> None:
        block = Text("\n").join(Text.from_ansi(line) for line in lines)
        if self.prefix:
            start = (f"[{who}] ", f"bold {colour_of(who)}")
            block = Text("\n").join(Text.assemble(start, Text.from_ansi(line)) for line in lines)
        self._print(block)

    def show_words(self, text: str, bad: bool) -> None:
        self._print(Text(text, "bold red" if bad else "bright_black"))

    def report(self, worker: Worker) -> None:
        """Its line shows it soon."""

    def refresh(self) -> None:
        if not self.quiet:
            try:
                self._live.update(self._lines(), refresh=True)
            except OSError as error:
                raise OutputClosedError from error

    def summary(self) -> None:
        if self.quiet:
            return
        table = Table(title="tlrun", title_justify="left")
        for header in summary.HEADERS:
            table.add_column(header, justify="left" if header == "host" else "right")
        for worker, row in zip(self.workers, summary.rows(self.workers), strict=True):
            table.add_row(*row, style=STATES.get(worker.state) if worker.status else None)
        self._print(table)

    def _lines(self) -> Table:
        rows = max(1, self._console.height - FREE_ROWS)
        lines = [self._line(worker) for worker in self.workers[:rows]]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        # Never two rows for one worker: what does not fit is left out, the last first.
        fitting, room = 0, self._console.width
        while fitting < len(widths) and (room := room - widths[fitting] - GAP) >= -GAP:
            fitting += 1
        table = Table.grid(padding=(0, GAP, 0, 0))
        for _ in range(max(1, fitting)):
            table.add_column(no_wrap=True)
        for line in lines:
            table.add_row(*line[: max(1, fitting)])
        if len(self.workers) > rows:
            table.add_row("...")
        return table

    def _line(self, worker: Worker) -> list[Text]:
        report = worker.report
        cells = [
            ("step", figures.steps(report)),
            ("loss", figures.loss(report)),
            next(iter(figures.metrics(report)), ("", figures.NOTHING)),
            ("steps/s", figures.rate(report)),
            ("fewer", figures.times_fewer(report)),
            ("MB", figures.megabytes(report)),
            ("density", figures.density(report)),
            ("stale", figures.staleness(report)),
        ]
        shown = [
            Text.assemble((f"{name} ", "bright_black"), value)
            if value != figures.NOTHING
            else Text()
            for name, value in cells
        ]
        state = f"{worker.state} ({worker.restarts})" if worker.restarts else worker.state
        return [
            Text(f"[{worker.rank}]", f"bold {colour_of(worker.rank)}"),
            Text(worker.host.name, "bright_black"),
            Text(state, STATES.get(worker.state, "")),
            *shown,
        ]

    def _print(self, what: Text | Table) -> None:
        try:
            self._console.print(what)
        except OSError as error:
            raise OutputClosedError from error
