"""From trainings to ratios with targets: the tables and the JSON of the benchmark of Spark."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import report
import spark_plan
from report import Ratio, Row
from rich import box
from rich.table import Table
from spark_cluster import Fitted
from spark_plan import (
    ABOUT,
    ASYNC_BATCH,
    ASYNC_EPOCH,
    LINK,
    OURS,
    OURS_FROM_DRIVER,
    SYNC,
    SYNC_FROM_DRIVER,
)

FEWER_BYTES, FASTER, POINTS, FEEDING = 50.0, 2.0, 0.5, 0.8
# The name of a ratio, whom of elephas' it is against, and who of ours has data in the same place.
PAIRS = (
    ("elephas_sync", SYNC, OURS),
    ("elephas_async", ASYNC_BATCH, OURS),
    ("elephas_async_epoch", ASYNC_EPOCH, OURS),
    ("elephas_from_driver", SYNC_FROM_DRIVER, OURS_FROM_DRIVER),
)
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

    @property
    def best_of_elephas(self) -> str | None:
        """The mode that learns best."""
        sides = [side for side in SHORT if side in self.fitted]
        return max(sides, key=lambda side: self.mean(side, "accuracy"), default=None)


def rows(results: Results) -> list[Row]:
    made = _compared(results, "bytes_per_sample", "bytes", FEWER_BYTES, "{:,.1f} B", _fewer)
    made += _compared(results, "samples_per_s", "speed", FASTER, "{:,.0f}/s", _faster)
    if best := results.best_of_elephas:
        ours, theirs = results.mean(OURS, "accuracy"), results.mean(best, "accuracy")
        made.append(
            Row(
                Ratio("accuracy_behind_elephas", f"{SHORT[best]} (points)", POINTS, at_most=True),
                [f"{ours:.2f}"],
                f"{theirs:.2f}",
                [theirs - ours],
            )
        )
    return made + _feeding(results)


def _compared(
    results: Results,
    what: str,
    name: str,
    target: float,
    shown: str,
    ratio: Callable[[float, float], float],
) -> list[Row]:
    made = []
    for peer, theirs, ours in PAIRS:
        if theirs not in results.fitted:
            continue
        by_seed = zip(results.fitted[ours], results.fitted[theirs], strict=True)
        made.append(
            Row(
                Ratio(f"{name}_vs_{peer}", SHORT[theirs], target),
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
    for side in (s for s in ABOUT if s in results.fitted):
        accuracies = [one.accuracy for one in results.fitted[side]]
        shown.add_row(
            ABOUT[side],
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
        "settings": spark_plan.SETTINGS,
        "learning_rates": spark_plan.RATES,
        "about": ABOUT,
        "runs": {side: [one.to_json() for one in ran] for side, ran in results.fitted.items()},
        "feeding_rows_per_s": results.feeding,
        **({"elephas_skipped": results.skipped} if results.skipped else {}),
    }
