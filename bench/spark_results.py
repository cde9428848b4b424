"""From trainings to ratios with targets: the tables and the JSON of the benchmark of Spark."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

import report
from report import Ratio, Row
from rich import box
from rich.table import Table
from spark_cluster import Fitted
from spark_plan import (
    ASYNC_BATCH,
    ASYNC_EPOCH,
    LINK,
    OURS,
    OURS_FROM_DRIVER,
    OURS_OFTEN,
    SIDES,
    SILENT,
    SYNC,
    SYNC_FROM_DRIVER,
)

FEWER_BYTES, FASTER, POINTS, FEEDING = 50.0, 2.0, 0.5, 0.8
# The name of a ratio, whom of elephas' it is against, and who of ours: with data in the same place,
# and against the mode that exchanges with every batch the one that exchanges often, too.
PAIRS = (
    ("elephas_sync", SYNC, OURS),
    ("elephas_async", ASYNC_BATCH, OURS_OFTEN),
    ("elephas_async_epoch", ASYNC_EPOCH, OURS),
    ("elephas_from_driver", SYNC_FROM_DRIVER, OURS_FROM_DRIVER),
)
# What could be had at best against the modes that hardly exchange.
LIMITS = (("elephas_sync", SYNC, SILENT), ("elephas_async_epoch", ASYNC_EPOCH, SILENT))
SHORT = {
    SYNC: "sync",
    ASYNC_BATCH: "async, by batch",
    ASYNC_EPOCH: "async, by epoch",
    SYNC_FROM_DRIVER: "sync, from the driver",
}


@dataclass
class Results:
    """Everything that was run."""

    fitted: dict[str, list[Fitted]] = field(default_factory=dict)  # by side; one for each seed
    feeding: dict[str, list[float]] = field(default_factory=dict)  # rows/s, by round
    # Why there is nothing of elephas.
    skipped: str = ""

    def add(self, one: Fitted) -> None:
        self.fitted.setdefault(one.side, []).append(one)

    def mean(self, side: str, what: str) -> float:
        return statistics.fmean(getattr(one, what) for one in self.fitted[side])


def rows(results: Results) -> list[Row]:
    bytes_, speed = partial(Ratio, target=FEWER_BYTES), partial(Ratio, target=FASTER)
    points = partial(Ratio, target=POINTS, at_most=True)
    per_sample = ("bytes_per_sample", "{:,.1f} B", _fewer)
    per_second = ("samples_per_s", "{:,.0f}/s", _faster)
    compared = partial(_compared, results)
    return [
        *compared(PAIRS, "bytes_vs", bytes_, *per_sample),
        *compared(LIMITS, "limit_bytes_vs", Ratio, *per_sample),
        *compared(PAIRS, "speed_vs", speed, *per_second),
        *compared(LIMITS, "limit_speed_vs", Ratio, *per_second),
        *compared(PAIRS, "points_behind", points, "accuracy", "{:.2f}%", _behind),
        *_feeding(results),
    ]


def _compared(
    results: Results,
    pairs: Sequence[tuple[str, str, str]],
    name: str,
    make: Callable[[str, str], Ratio],
    what: str,
    shown: str,
    ratio: Callable[[float, float], float],
) -> list[Row]:
    made = []
    for peer, theirs, ours in pairs:
        if theirs not in results.fitted or ours not in results.fitted:
            continue
        by_seed = zip(results.fitted[ours], results.fitted[theirs], strict=True)
        made.append(
            Row(
                make(f"{name}_{peer}", SHORT[theirs]),
                [shown.format(results.mean(ours, what))],
                shown.format(results.mean(theirs, what)),
                [ratio(getattr(own, what), getattr(other, what)) for own, other in by_seed],
            )
        )
    return made


def _fewer(ours: float, theirs: float) -> float:
    return theirs / ours


def _faster(ours: float, theirs: float) -> float:
    return ours / theirs


def _behind(ours: float, theirs: float) -> float:
    return theirs - ours


def _feeding(results: Results) -> list[Row]:
    if not results.feeding:
        return []
    bare = results.feeding["bare"]

    def row(name: str, kind: str, target: float | None) -> Row:
        fed = results.feeding[kind]
        return Row(
            Ratio(name, "summing batches", target),
            [f"{statistics.median(fed):,.0f}/s"],
            f"{statistics.median(bare):,.0f}/s",
            [own / roof for own, roof in zip(fed, bare, strict=True)],
        )

    return [row("feed_ratio", "feed", FEEDING), row("feed_ratio_spilling", "spilling", None)]


def by_side(results: Results) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, title=f"Two workers at {LINK}", title_justify="left")
    shown.add_column("who", no_wrap=True)
    for heading in ("samples/s", "seconds", "MB", "bytes/sample", "accuracy", "min to max"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for side in (s for s in SIDES if s in results.fitted):
        accuracies = [one.accuracy for one in results.fitted[side]]
        shown.add_row(
            SIDES[side].about,
            f"{results.mean(side, 'samples_per_s'):,.0f}",
            f"{results.mean(side, 'seconds'):,.1f}",
            f"{results.mean(side, 'bytes') / 1e6:,.1f}",
            f"{results.mean(side, 'bytes_per_sample'):,.1f}",
            f"{statistics.fmean(accuracies):.2f}",
            f"{min(accuracies):.2f} to {max(accuracies):.2f}",
        )
    return shown


def to_json(results: Results, shown: list[Row], facts: dict) -> dict:
    return report.to_json(shown, facts) | {
        "at_most": [row.ratio.name for row in shown if row.ratio.at_most],
        "link": LINK,
        "sides": {name: asdict(side) for name, side in SIDES.items()},
        "runs": {side: [one.to_json() for one in ran] for side, ran in results.fitted.items()},
        "feeding_rows_per_s": results.feeding,
        **({"elephas_skipped": results.skipped} if results.skipped else {}),
    }
