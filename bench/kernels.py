"""Measures the kernels against what the memory allows, numpy and the standard library.

Prints a table and writes it as JSON. A ratio is how many times the speed of its roof a kernel
reaches: both take turns in the same memory, and what is shown is the median over several rounds. A
ratio below its target is shown as such and is no failure: this is no test.
"""

import argparse
import statistics
import sys
from pathlib import Path

import machine
import report
from rich.console import Console
from rounds import RATIOS, Measured, run_rounds

# With fewer cores free than this, two threads cannot be nearly twice as fast.
ENOUGH_FREE_CORES = 1.8
ENTRIES = 25_000_000  # what the targets were set for
ROUNDS = 7


def rows(measured: Measured) -> list[report.Row]:
    return [
        report.Row(
            ratio,
            [f"{statistics.median(series.ms):.2f}", series.rate],
            f"{statistics.median(series.roof_ms):.2f}",
            series.ratios,
        )
        for ratio, series in ((ratio, measured.series[ratio.name]) for ratio in RATIOS)
    ]


def remarks(shown: list[report.Row], facts: dict) -> list[str]:
    lines = [
        f"{facts['entries']:,} floats, {facts['rounds']} rounds, {facts['instruction_set']} on "
        f"{facts['cores']} x {facts['cpu']}, load {facts['load_average'][0]} at the start.",
        report.verdict(shown),
    ]
    if facts["entries"] != ENTRIES:
        lines.append(f"The targets are for {ENTRIES:,} floats, which no cache holds.")
    if facts["free_cores"] < ENOUGH_FREE_CORES:
        lines.append(
            f"Only {facts['free_cores']} cores were free between the rounds: threads2 says little."
        )
    return lines


def to_json(shown: list[report.Row], measured: Measured, facts: dict) -> dict:
    series = measured.series
    return report.to_json(shown, facts) | {
        "ms": {name: round(statistics.median(s.ms), 4) for name, s in series.items()},
        "roof_ms": {name: round(statistics.median(s.roof_ms), 4) for name, s in series.items()},
        "rates": {name: s.rate for name, s in series.items()},
    }


def parse_arguments() -> argparse.Namespace:
    parser = report.Parser("kernels", __doc__, ROUNDS, "1,000,000 floats")
    parser.add_argument("--entries", type=report.positive, help="floats per vector (25,000,000)")
    parser.add_argument(
        "--binary",
        type=Path,
        default=machine.ROOT / ".bazel/bin/bench/kernels",
        metavar="PATH",
        help="the benchmark to run (what make bench-kernels builds)",
    )
    options = parser.options()
    options.entries = options.entries or (1_000_000 if options.quick else ENTRIES)
    # Bazel moves the link when something else is built meanwhile.
    options.binary = options.binary.resolve()
    return options


def main(console: Console) -> None:
    options = parse_arguments()
    facts = machine.facts() | {"entries": options.entries, "rounds": options.rounds}
    with report.progress(console, "making data", options.rounds * len(RATIOS)) as step:
        measured = run_rounds(options.binary, options.entries, options.rounds, step)
    facts["instruction_set"] = measured.instruction_set
    facts["free_cores"] = round(statistics.median(measured.free_cores), 1)
    shown = rows(measured)
    report.finish(
        console,
        report.table(
            "Kernels against their roofs",
            ["ms", "rate"],
            ["roof", "its ms", "times the roof"],
            shown,
        ),
        remarks(shown, facts),
        options.json,
        to_json(shown, measured, facts),
    )


if __name__ == "__main__":
    sys.exit(report.run("bench/kernels.py", main))
