"""Measures machines and bytes (comm/) against limits that are measured in the same run.

Prints a table and writes it as JSON. What is measured and its limit take turns, and what is shown
is the median over the turns. A ratio that misses its target is shown as such and is no failure:
this is no test. That something got lost on the way is one.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import comm_bulk
import comm_overlap
import comm_workers
import machine
import report
from comm_programs import Programs, run
from comm_series import Series
from report import Ratio
from rich.console import Console

ROUNDS = 11
TRANSFER_SECONDS = 1
OVERLAP_SECONDS = 0.4  # of a turn; enough for several exchanges
CONGESTION = "cubic"
# With fewer cores free than this, the two ends of a connection wait for others.
ENOUGH_FREE_CORES = 1.8


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    turns: int  # of what is measured within one process
    trips: int  # round trips of each a turn
    entries: int  # of the large model
    workers: tuple[int, ...]  # how many at a time; the last beside the second
    exchanging_seconds: float  # so many workers
    memory_rounds: int


FULL = Size(40, 100, 25_000_000, (1, 16, 256, 1024), 2, 3)
QUICK = Size(3, 20, 8_000_000, (1, 4, 16, 128), 0.3, 2)


@dataclass(frozen=True)
class Measure:
    ratio: Ratio
    take: Callable[["Job"], Series]
    rounds: bool = True  # or all turns at once


@dataclass
class Job:
    """What a measure has to work with."""

    programs: Programs
    size: Size
    rounds: int
    step: Callable[[], None]


def bulk(job: Job) -> Series:
    return comm_bulk.plain(job.programs, CONGESTION, job.rounds, TRANSFER_SECONDS, job.step)


def bulk_default(job: Job) -> Series:
    system = comm_bulk.congestion_controls()["system"]
    return comm_bulk.plain(job.programs, system, job.rounds, TRANSFER_SECONDS, job.step)


def bulk_tls(job: Job) -> Series:
    return comm_bulk.tls(job.programs, job.rounds, TRANSFER_SECONDS, job.step)


def round_trip(job: Job) -> Series:
    turns = job.programs.part(
        "round-trip", f"--turns={job.size.turns}", f"--trips={job.size.trips}"
    )
    sizes = {name: turns[0][name] for name in ("bytes_there", "bytes_back")}
    return Series.of_times([(turn["seconds"], turn["echo_seconds"]) for turn in turns], **sizes)


def apply(job: Job) -> Series:
    with job.programs.aggregator() as (endpoint, aggregator):
        turns = job.programs.part(
            "apply",
            f"--aggregator={endpoint}",
            f"--pid={aggregator.pid}",
            f"--entries={job.size.entries}",
            f"--turns={max(2, job.size.turns // 4)}",
        )
    pairs = [(turn["cpu_seconds"], turn["kernels_cpu_seconds"]) for turn in turns]
    return Series.of_times(pairs, entries=job.size.entries)


def scale(job: Job) -> Series:
    size = job.size
    return comm_workers.scale(
        job.programs, size.workers, job.rounds, size.exchanging_seconds, job.step
    )


def memory(job: Job) -> Series:
    few, many = job.size.workers[1], job.size.workers[-1]
    return comm_workers.memory(job.programs, few, many, job.size.memory_rounds)


def overlap(job: Job) -> Series:
    return comm_overlap.overlap(job.programs, 1000, job.size.turns, OVERLAP_SECONDS, step_ms=10)


MEASURES = [
    Measure(Ratio("bulk_vs_iperf", "iperf3, cubic", 0.9), bulk),
    Measure(Ratio("bulk_default_vs_iperf", "iperf3, system's"), bulk_default),
    Measure(Ratio("bulk_tls_vs_openssl", "openssl speed"), bulk_tls),
    Measure(Ratio("rtt_vs_echo", "bare echo", 0.667), round_trip, False),
    Measure(Ratio("apply_vs_kernels", "kernels alone", 0.5), apply, False),
    Measure(Ratio("scale_1024", "16 workers", 0.8), scale),
    Measure(Ratio("worker_kib", "its view", 64, at_most=True), memory, False),
    Measure(Ratio("overlap", "loop alone", 0.97), overlap, False),
]


def rows(measured: dict[str, Series]) -> list[report.Row]:
    def row(measure: Measure) -> report.Row:
        series = measured[measure.ratio.name]
        own, roof = series.shown()
        return report.Row(measure.ratio, [own], roof, series.by_round)

    return [row(measure) for measure in MEASURES]


def remarks(shown: list[report.Row], measured: dict[str, Series], facts: dict) -> list[str]:
    by_workers = measured["scale_1024"].details["by_workers"]
    rates = (
        f"{count} {seen['exchanges_per_s']:,.0f}/s ({seen['p99_us'] / 1e3:.1f} ms)"
        for count, seen in by_workers.items()
    )
    loop = measured["overlap"].details
    lines = [
        f"{facts['rounds']} rounds on {facts['cores']} x {facts['cpu']}, congestion control "
        f"{facts['congestion_control']['system']} unless told, load {facts['load_average'][0]} at "
        "the start.",
        report.verdict(shown),
        f"Exchanges by number of workers (and p99): {', '.join(rates)}; nothing was lost.",
        f"The loop had its exchanges over {loop['link']}, {loop['exchanges_per_s']:.1f} a second; "
        f"by the wall's clock its ratio is {loop['wall_ratio']:.2f}.",
    ]
    if facts["quick"]:
        lines.append("The targets are for a full run: make bench-comm.")
    if facts["free_cores"] < ENOUGH_FREE_CORES:
        lines.append(
            f"Only {facts['free_cores']} cores were free between the measures: others have "
            "disturbed them."
        )
    return lines


def to_json(shown: list[report.Row], measured: dict[str, Series], facts: dict) -> dict:
    return report.to_json(shown, facts) | {
        # Of these less is better, and the target is the most.
        "at_most": [row.ratio.name for row in shown if row.ratio.at_most],
        "measured": {name: series.to_json() for name, series in measured.items()},
    }


def parse_arguments() -> argparse.Namespace:
    parser = report.Parser("comm", __doc__, ROUNDS, "less of everything, also without -c opt")
    parser.add_argument(
        "--bin",
        type=Path,
        default=machine.ROOT / ".bazel/bin",
        metavar="FOLDER",
        help="where Bazel has put the programs (what make bench-comm builds)",
    )
    return parser.options()


def main(console: Console) -> None:
    options = parse_arguments()
    programs = Programs(options.bin)
    programs.check(unoptimised=options.quick)
    facts = machine.facts() | {
        "rounds": options.rounds,
        "quick": options.quick,
        "congestion_control": comm_bulk.congestion_controls(),
        "iperf3": run(["iperf3", "--version"]).split("\n")[0],
        "openssl": run(["openssl", "version"]).strip(),
    }
    measured: dict[str, Series] = {}
    free_cores = []
    steps = sum(options.rounds if measure.rounds else 1 for measure in MEASURES)
    with report.progress(console, MEASURES[0].ratio.name, steps) as step:
        for measure in MEASURES:
            name = measure.ratio.name
            free_cores.append(machine.free_cores())
            size = QUICK if options.quick else FULL
            job = Job(programs, size, options.rounds, lambda name=name: step(name))
            measured[name] = measure.take(job)
            if not measure.rounds:
                step(name)
    facts["free_cores"] = round(statistics.median(free_cores), 1)
    shown = rows(measured)
    report.finish(
        console,
        report.table(
            "Machines and bytes against their limits",
            ["measured"],
            ["against", "which has", "ratio"],
            shown,
        ),
        remarks(shown, measured, facts),
        options.json,
        to_json(shown, measured, facts),
    )


if __name__ == "__main__":
    sys.exit(report.run("bench/comm.py", main))
