"""From what was run to ratios with targets: the table, the lines below it, the JSON."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import report
from report import Ratio, Row
from rich import box
from rich.table import Table
from train_learning import Side
from train_models import TASKS
from train_peers import STRATEGIES, PeerOutcome
from train_plan import DEFAULT, FAST, SLOW
from train_speed import Speed

# Both count as reached within this: what two evaluations of one model may differ by.
POINTS = 0.1
BPC_SHARE = 0.002
NAMES = {"pss": "psstrategy", "mwms": "mwms"}
SHORT = {"pss": "ParameterServer", "mwms": "MultiWorker"}


class Worst(Row):
    """A row of several models: its value is that of the one that does worst."""

    @property
    def value(self) -> float:
        return max(self.by_round) if self.ratio.at_most else min(self.by_round)


@dataclass
class Results:
    """Everything that was run."""

    sides: dict[str, dict[str, Side]] = field(default_factory=dict)  # by task and policy
    peers: dict[str, dict[str, PeerOutcome]] = field(default_factory=dict)  # strategy and task
    speeds: list[Speed] = field(default_factory=list)
    # One worker and two of the quickest policy, by seed, over the slow link.
    one: Side | None = None
    pair: Side | None = None

    def steps_to_accuracy(self, task: str, policy: str) -> float | None:
        sides = self.sides[task]
        return to_accuracy(sides["one"], sides[policy], "steps")

    def quickest(self, task: str) -> tuple[str, float] | None:
        """The policy that needs the fewest steps, and the ratio."""
        ratios = {p: self.steps_to_accuracy(task, p) for p in self.sides[task] if p != "one"}
        reached = {policy: ratio for policy, ratio in ratios.items() if ratio}
        return max(reached.items(), key=lambda item: item[1]) if reached else None


def goal(one: Side) -> float:
    """One worker's plateau, but for what is no difference."""
    if one.task.more_is_better:
        return one.plateau - POINTS
    return one.plateau * (1 + BPC_SHARE)


def to_accuracy(one: Side, team: Side, what: str) -> float | None:
    """One worker's steps (or seconds) to its plateau, divided by a team's; None: never reached."""
    ours = team.reaches(goal(one))
    if ours is None:
        return None
    return getattr(one, what)[one.reaches(goal(one))] / getattr(team, what)[ours]


def behind(side: Side, value: float) -> float:
    """How much worse, in points of accuracy or per cent of the bits; negative: better."""
    if side.task.more_is_better:
        return value - side.final
    return 100 * (side.final / value - 1)


def rows(results: Results) -> list[Row]:
    return [
        *_bytes(results),
        *_accuracy(results),
        *_time(results),
        *(row for speed in results.speeds for row in _speed(speed)),
    ]


def _bytes(results: Results) -> list[Row]:
    ours = {task: sides[DEFAULT].bytes_per_sample for task, sides in results.sides.items()}
    dense = {task: sides["dense"].bytes_per_sample for task, sides in results.sides.items()}
    others = {"dense_easgd": ("dense EASGD", dense, 50.0)}
    for strategy, by_task in results.peers.items():
        moved = {task: outcome.bytes_per_sample for task, outcome in by_task.items()}
        others[NAMES[strategy]] = (SHORT[strategy], moved, 500.0)
    made = []
    for name, (shown, moved, target) in others.items():
        tasks = [task for task in moved if task in ours]
        if not tasks:  # Only another part was measured.
            continue
        made.append(
            Worst(
                Ratio(f"bytes_vs_{name}", f"{shown}, a sample", target),
                [f"{_range([ours[task] for task in tasks])} B"],
                f"{_range([moved[task] for task in tasks])} B",
                [moved[task] / ours[task] for task in tasks],
            )
        )
    return made


def _accuracy(results: Results) -> list[Row]:
    made = []
    for metric, unit, target in (("accuracy", "points", 0.5), ("bpc", "%", 1.0)):
        tasks = [t for t in results.sides if TASKS[t].metric == metric]
        if not tasks:
            continue
        sides = [results.sides[task] for task in tasks]
        finals = ", ".join(f"{side[DEFAULT].final:.2f}" for side in sides)
        for name, roof, values in (
            ("dense", "dense EASGD", [side["dense"].final for side in sides]),
            ("one", "one's best", [side["one"].best for side in sides]),
        ):
            gaps = [behind(side[DEFAULT], v) for side, v in zip(sides, values, strict=True)]
            made.append(
                Worst(
                    Ratio(f"{metric}_behind_{name}", f"{roof} ({unit})", target, at_most=True),
                    [finals],
                    ", ".join(f"{value:.2f}" for value in values),
                    gaps,
                )
            )
    return made


def _time(results: Results) -> list[Row]:
    made: list[Row] = []
    reached = {task: results.quickest(task) for task in results.sides}
    if reached:
        made.append(
            Worst(
                Ratio("steps_to_accuracy_4", "one worker's steps", 2.0),
                [", ".join(quick[0] for quick in reached.values() if quick) or "none"],
                ", ".join(f"{results.sides[task]['one'].plateau:.2f}" for task in reached),
                [quick[1] if quick else 0.0 for quick in reached.values()],
            )
        )
    if results.one and results.pair:
        ratio = to_accuracy(results.one, results.pair, "seconds") or 0.0
        made.append(
            Row(
                Ratio("time_to_accuracy_2", f"one worker, {SLOW}", 1.5),
                [f"{results.pair.policy}, {results.pair.seconds[-1]:.0f} s"],
                f"{results.one.seconds[-1]:.0f} s",
                [ratio],
            )
        )
    return made


def _speed(speed: Speed) -> list[Row]:
    slow = speed.link == SLOW
    suffix = "" if slow else f"_{speed.link}"
    ours = statistics.median(speed.ours)
    made = []
    for strategy, outcome in speed.peers.items():
        name = NAMES[strategy]
        made.append(
            Row(
                Ratio(
                    f"speed_vs_{name}{suffix}",
                    f"{SHORT[strategy]}, {speed.link}",
                    5.0 if slow else None,
                ),
                [f"{ours:,.0f}/s"],
                f"{outcome.samples_per_s:,.0f}/s",
                [own / outcome.samples_per_s for own in speed.ours],
            )
        )
    silent = statistics.median(speed.silent)
    made.append(
        Row(
            Ratio(
                f"speed_vs_silent{suffix}",
                f"silence, {speed.link}",
                0.9 if slow else None,
            ),
            [f"{ours:,.0f}/s"],
            f"{silent:,.0f}/s",
            [own / quiet for own, quiet in zip(speed.ours, speed.silent, strict=True)],
        )
    )
    return made


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:,.0f}" if round(low) == round(high) else f"{low:,.0f}-{high:,.0f}"


def by_model(results: Results) -> Table:
    """What every model has learned, and moved."""
    shown = Table(box=box.SIMPLE_HEAD, title="By model, mean of the seeds", title_justify="left")
    shown.add_column("model", no_wrap=True)
    shown.add_column("who", no_wrap=True)
    for heading in ("rate", "steps", "at the end", "best", "steps ratio", "bytes/sample", "whole"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for task, sides in results.sides.items():
        for policy, side in sides.items():
            first = side.outcomes[0].spec
            ratio = None if policy == "one" else results.steps_to_accuracy(task, policy)
            shown.add_row(
                task if policy == "one" else "",
                "one worker" if policy == "one" else f"{first.workers} workers, {policy}",
                f"{first.rate:g}",
                f"{first.steps:,}",
                f"{side.final:.2f}",
                f"{side.best:.2f}",
                f"{ratio:.2f}" if ratio else "" if policy == "one" else "not reached",
                f"{side.bytes_per_sample:,.1f}" if policy != "one" else "",
                f"{side.whole_bytes_per_sample:,.1f}" if policy != "one" else "",
            )
        for strategy, by_task in results.peers.items():
            if task in by_task:
                outcome = by_task[task]
                moved = f"{outcome.bytes_per_sample:,.1f}"
                name = f"{outcome.workers} workers, {STRATEGIES[strategy]}"
                shown.add_row("", name, "", f"{outcome.steps}", "", "", "", moved, "")
        shown.add_section()
    return shown


def whole_job(results: Results) -> dict[str, dict[str, float]]:
    """The bytes' ratios with first and last weights counted too, for jobs as long as these."""
    found: dict[str, dict[str, float]] = {}
    for task, sides in results.sides.items():
        ours = sides[DEFAULT].whole_bytes_per_sample
        found[task] = {"dense_easgd": sides["dense"].whole_bytes_per_sample / ours}
        for strategy, by_task in results.peers.items():
            if task in by_task:
                found[task][strategy] = by_task[task].bytes_per_sample / ours
    return found


def to_json(results: Results, shown: Sequence[Row], facts: dict) -> dict:
    return report.to_json(shown, facts) | {
        "at_most": [row.ratio.name for row in shown if row.ratio.at_most],
        "whole_job": whole_job(results),
        "learning": {
            task: {policy: side.to_json() for policy, side in sides.items()}
            for task, sides in results.sides.items()
        },
        "steps_to_accuracy_4": {
            task: {p: results.steps_to_accuracy(task, p) for p in sides if p != "one"}
            for task, sides in results.sides.items()
        },
        "strategies": {
            strategy: {task: outcome.to_json() for task, outcome in by_task.items()}
            for strategy, by_task in results.peers.items()
        },
        "speed": [speed.to_json() for speed in results.speeds],
        "pair": {
            side.policy: side.to_json() for side in (results.one, results.pair) if side is not None
        },
        "links": [SLOW, FAST],
    }
