"""How benchmarks report: a table of ratios with their targets, the ones that were missed, JSON."""

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import machine
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

PLAIN_WIDTH = 130  # columns of the table where there is no terminal


class BenchmarkError(Exception):
    """A program is missing, not optimised, or failed; says what to do."""


def failure(program: Path, status: int, said: str) -> BenchmarkError:
    """Of a program that has ended with this status."""
    last = (said.strip().splitlines() or ["nothing"])[-1]
    return BenchmarkError(f"{program} ended with status {status} and said: {last}")


@dataclass(frozen=True)
class Ratio:
    """What is measured, divided by its roof, which is measured beside it."""

    name: str
    roof: str
    target: float | None = None
    # The target is the most that is good, and not the least.
    at_most: bool = False

    def misses(self, value: float) -> bool:
        if self.target is None:
            return False
        return value > self.target if self.at_most else value < self.target


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    ratio: Ratio
    measured: Sequence[str]
    roof_measured: str
    by_round: Sequence[float]

    @property
    def value(self) -> float:
        return statistics.median(self.by_round)

    @property
    def missed(self) -> bool:
        return self.ratio.misses(self.value)


def table(title: str, measured: Sequence[str], roof: Sequence[str], rows: Sequence[Row]) -> Table:
    """`measured`: headings of Row.measured. `roof`: of the roof, of what it has, of the ratio."""
    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    shown.add_column("ratio", no_wrap=True)
    for heading in measured:
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column(roof[0], no_wrap=True)
    for heading in (*roof[1:], "min to max", "target"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("")
    for row in rows:
        target, least = row.ratio.target, "" if not row.ratio.at_most else "at most "
        verdict = "[yellow]above[/]" if row.ratio.at_most else "[yellow]below[/]"
        shown.add_row(
            row.ratio.name,
            *row.measured,
            row.ratio.roof,
            row.roof_measured,
            f"{row.value:.2f}",
            f"{min(row.by_round):.2f} to {max(row.by_round):.2f}",
            "" if target is None else f"{least}{target:g}",
            "" if target is None else verdict if row.missed else "[green]ok[/]",
        )
    return shown


def verdict(rows: Sequence[Row]) -> str:
    missed = [f"{r.ratio.name} ({r.value:.2f} of {r.ratio.target:g})" for r in rows if r.missed]
    return f"Targets missed: {', '.join(missed)}." if missed else "Every target is met."


def to_json(rows: Sequence[Row], facts: dict) -> dict:
    return {
        "ratios": {row.ratio.name: round(row.value, 4) for row in rows},
        "targets": {row.ratio.name: row.ratio.target for row in rows if row.ratio.target},
        "by_round": {row.ratio.name: [round(v, 4) for v in row.by_round] for row in rows},
        "machine": facts,
    }


@contextlib.contextmanager
def progress(console: Console, first: str, steps: int) -> Iterator[Callable[[str], None]]:
    """Gives a function to call after each of so many steps: a bar, or lines without a terminal."""
    columns = [BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(first, total=steps)

        def step(text: str) -> None:
            bar.update(task, advance=1, description=text)
            if not console.is_terminal:
                print(text, flush=True)

        yield step


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


class Parser(argparse.ArgumentParser):
    """Of a benchmark's command line, with what all have: --rounds, --quick and --json."""

    def __init__(self, name: str, description: str, rounds: int, quick: str):
        super().__init__(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self._name, self._rounds = name, rounds
        self.add_argument(
            "--rounds", type=positive, help=f"how often all is measured ({rounds}; 2 if --quick)"
        )
        self.add_argument("--quick", action="store_true", help=f"a look: {quick}, 2 rounds")
        self.add_argument(
            "--json",
            type=Path,
            metavar="PATH",
            help=f"where to write the results (bench/out/{name}.json, or {name}-quick.json)",
        )

    def options(self) -> argparse.Namespace:
        given = self.parse_args()
        given.rounds = given.rounds or (2 if given.quick else self._rounds)
        file = f"{self._name}-quick.json" if given.quick else f"{self._name}.json"
        given.json = given.json or machine.ROOT / "bench/out" / file
        return given


def finish(
    console: Console, shown: Table, remarks: Sequence[str], path: Path, results: dict
) -> None:
    """Shows the table and what there is to say, and writes the results."""
    console.print(shown)
    for line in remarks:
        console.print(line, highlight=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")
    console.print(f"Written to {path}", highlight=False, soft_wrap=True)


def run(name: str, main: Callable[[Console], None]) -> int:
    """A program's exit status; its errors are sentences."""
    try:
        main(Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH))
    except BenchmarkError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    return 0
