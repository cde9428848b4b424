"""Measures the kernels against what the memory allows, numpy and the standard library.

Prints a table and writes it as JSON. A ratio is how many times the speed of its roof a kernel
reaches: both take turns in the same memory, and what is shown is the median over several rounds. A
ratio below its target is shown as such and is no failure: this is no test.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import machine
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rounds import RATIOS, BenchmarkError, Measured, run_rounds

# With fewer cores free than this, two threads cannot be nearly twice as fast.
ENOUGH_FREE_CORES = 1.8
ENTRIES = 25_000_000  # what the targets were set for
PLAIN_WIDTH = 130  # columns of the table where there is no terminal


def table(measured: Measured) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, title="Kernels against their roofs", title_justify="left")
    shown.add_column("ratio", no_wrap=True)
    shown.add_column("ms", justify="right")
    shown.add_column("rate", justify="right", no_wrap=True)
    shown.add_column("roof", no_wrap=True)
    for heading in ("its ms", "times the roof", "min to max", "target"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("")
    for ratio in RATIOS:
        series = measured.series[ratio.name]
        missed = ratio.target is not None and series.ratio < ratio.target
        shown.add_row(
            ratio.name,
            f"{statistics.median(series.ms):.2f}",
            series.rate,
            ratio.roof,
            f"{statistics.median(series.roof_ms):.2f}",
            f"{series.ratio:.2f}",
            f"{min(series.ratios):.2f} to {max(series.ratios):.2f}",
            "" if ratio.target is None else f"{ratio.target:g}",
            "" if ratio.target is None else "[yellow]below[/]" if missed else "[green]ok[/]",
        )
    return shown


def remarks(measured: Measured, facts: dict) -> list[str]:
    missed = [
        f"{ratio.name} ({measured.series[ratio.name].ratio:.2f} of {ratio.target:g})"
        for ratio in RATIOS
        if ratio.target is not None and measured.series[ratio.name].ratio < ratio.target
    ]
    lines = [
        f"{facts['entries']:,} floats, {facts['rounds']} rounds, {facts['instruction_set']} on "
        f"{facts['cores']} x {facts['cpu']}, load {facts['load_average'][0]} at the start.",
        f"Below target: {', '.join(missed)}." if missed else "Every target is met.",
    ]
    if facts["entries"] != ENTRIES:
        lines.append(f"The targets are for {ENTRIES:,} floats, which no cache holds.")
    if facts["free_cores"] < ENOUGH_FREE_CORES:
        lines.append(
            f"Only {facts['free_cores']} cores were free between the rounds: threads2 says little."
        )
    return lines


def to_json(measured: Measured, facts: dict) -> dict:
    series = measured.series
    return {
        "ratios": {name: round(s.ratio, 4) for name, s in series.items()},
        "targets": {r.name: r.target for r in RATIOS if r.target is not None},
        "by_round": {name: [round(v, 4) for v in s.ratios] for name, s in series.items()},
        "ms": {name: round(statistics.median(s.ms), 4) for name, s in series.items()},
        "roof_ms": {name: round(statistics.median(s.roof_ms), 4) for name, s in series.items()},
        "rates": {name: s.rate for name, s in series.items()},
        "machine": facts,
    }


def measure(options: argparse.Namespace, console: Console) -> Measured:
    columns = [BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("making data", total=options.rounds * len(RATIOS))

        def step(text: str) -> None:
            bar.update(task, advance=1, description=text)
            if not console.is_terminal:
                print(text, flush=True)

        return run_rounds(options.binary, options.entries, options.rounds, step)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=positive, help="floats per vector (25,000,000)")
    parser.add_argument("--rounds", type=positive, help="how often all is measured (7)")
    parser.add_argument("--quick", action="store_true", help="a look: 1,000,000 floats, 2 rounds")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        help="where to write the results (bench/out/kernels.json; kernels-quick.json if --quick)",
    )
    parser.add_argument(
        "--binary",
        type=Path,
        default=machine.ROOT / ".bazel/bin/bench/kernels",
        metavar="PATH",
        help="the benchmark to run (what make bench-kernels builds)",
    )
    options = parser.parse_args()
    options.entries = options.entries or (1_000_000 if options.quick else ENTRIES)
    options.rounds = options.rounds or (2 if options.quick else 7)
    name = "kernels-quick.json" if options.quick else "kernels.json"
    options.json = options.json or machine.ROOT / "bench/out" / name
    # Bazel moves the link when something else is built meanwhile.
    options.binary = options.binary.resolve()
    return options


def main() -> int:
    options = parse_arguments()
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    facts = machine.facts() | {"entries": options.entries, "rounds": options.rounds}
    try:
        measured = measure(options, console)
    except BenchmarkError as error:
        print(f"bench/kernels.py: {error}", file=sys.stderr)
        return 1
    facts["instruction_set"] = measured.instruction_set
    facts["free_cores"] = round(statistics.median(measured.free_cores), 1)
    console.print(table(measured))
    for line in remarks(measured, facts):
        console.print(line, highlight=False)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(to_json(measured, facts), indent=2) + "\n")
    console.print(f"Written to {options.json}", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("bench/kernels.py: interrupted")
