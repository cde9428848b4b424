"""Many workers on one tl-aggregator, simulated by tl-load: exchanges a second, and memory."""

import json
import time
from collections.abc import Callable, Sequence
from statistics import median

from comm_programs import Programs, Running, run, started
from comm_series import Series
from report import BenchmarkError

# Small: the work of an exchange is then the aggregator's own, not the kernels'.
ENTRIES = 1000
VIEW_KIB = ENTRIES * 4 / 1024
JOIN_SECONDS = 60
STEP_SECONDS = 0.5
# Of many idle workers, so that each has exchanged by then.
SETTLE_STEPS = 3


def exchange(programs: Programs, workers: int, seconds: float) -> dict:
    """tl-load's report on workers that exchange all the time; nothing may have got lost."""
    flags = ["--period=1", "--step=0", f"--duration={seconds * 1000:.0f}ms", "--check"]
    with programs.aggregator() as (endpoint, _):
        report = json.loads(run(programs.load(endpoint, workers, f"model:{ENTRIES}", *flags)))
    applied = report["aggregator"]["pushes"]
    if not report["views_agree"] or report["failures"] or report["pushes"] != applied:
        raise BenchmarkError(
            f"with {workers} workers something got lost: {report['pushes']} pushes were answered, "
            f"{applied} applied; views agree: {report['views_agree']}; {report['failures']}"
        )
    return report


def scale(
    programs: Programs, counts: Sequence[int], rounds: int, seconds: float, step: Callable[[], None]
) -> Series:
    """The exchanges a second of the most workers beside those of counts[1]."""
    roof, most = counts[1], counts[-1]
    reports: dict[int, list[dict]] = {count: [] for count in counts}
    for _ in range(rounds):
        # What is compared comes one right after the other.
        for count in sorted(counts, key=lambda count: count in (roof, most)):
            reports[count].append(exchange(programs, count, seconds))
        step()

    def rates(count: int) -> list[float]:
        return [report["exchanges_per_s"] for report in reports[count]]

    by_workers = {
        str(count): {
            "exchanges_per_s": median(rates(count)),
            "p50_us": median(report["latency_p50_us"] for report in reports[count]),
            "p99_us": median(report["latency_p99_us"] for report in reports[count]),
            "exchanges": sum(report["exchanges"] for report in reports[count]),
        }
        for count in counts
    }
    pairs = zip(rates(most), rates(roof), strict=True)
    return Series.of_rates("/s", pairs, workers=most, by_workers=by_workers)


def resident_kib(programs: Programs, workers: int) -> int:
    """Of an aggregator with so many workers that are all there, and mostly idle."""
    with programs.aggregator() as (endpoint, aggregator):
        files = aggregator.open_files()
        flags = ["--period=1", f"--step={STEP_SECONDS * 1000:.0f}ms", "--duration=10m"]
        command = programs.load(endpoint, workers, f"model:{ENTRIES}", *flags)
        with started(command):
            wait_for_files(aggregator, files + workers)
            time.sleep(SETTLE_STEPS * STEP_SECONDS)
            return aggregator.resident_kib()


def wait_for_files(aggregator: Running, wanted: int) -> None:
    deadline = time.monotonic() + JOIN_SECONDS
    while aggregator.open_files() < wanted:
        if time.monotonic() > deadline:
            raise BenchmarkError(f"not all workers had joined after {JOIN_SECONDS} s")
        time.sleep(0.05)


def memory(programs: Programs, few: int, many: int, rounds: int) -> Series:
    """KiB per worker, beyond its view."""

    def turn() -> float:
        difference = resident_kib(programs, many) - resident_kib(programs, few)
        return difference / (many - few) - VIEW_KIB

    kib = [turn() for _ in range(rounds)]
    return Series("KiB", kib, [VIEW_KIB] * rounds, kib, {"workers": many})
