"""Tries settings of a policy on one of the models of bench/train.py: how its defaults were found.

    bench/tune.py lstm elastic --try density=0.02,reply_density=0.05 --try bits=8 --rate 0.016

Workers and the aggregator are in network namespaces of their own; bytes are those that interfaces
have counted while training, of all workers. Without --try the policy's own settings are tried.
"""

import argparse
import json
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import machine
import report
import train_fleet
from rich import box
from rich.console import Console
from rich.table import Table
from train_fleet import ALONE, Fleet, Outcome, Programs, Spec
from train_models import TASKS
from train_plan import FAST, FULL, SETTINGS

POLICIES = ("one", "elastic", "local", "gradient", "gradient-async", "dense")


@dataclass(frozen=True)
class Trial:
    """One line of the table: the same settings with every seed."""

    outcomes: list[Outcome]

    @property
    def cells(self) -> list[str]:
        spec = self.outcomes[0].spec
        settings = ", ".join(f"{name}={value}" for name, value in spec.settings.items())
        values = [outcome.value for outcome in self.outcomes]
        samples = [outcome.training_bytes / outcome.spec.samples for outcome in self.outcomes]
        return [
            settings or "defaults",
            f"{spec.rate:g}",
            f"{statistics.fmean(values):.3f}",
            f"{min(values):.3f} to {max(values):.3f}",
            f"{statistics.fmean(samples):.1f}",
            f"{statistics.fmean(outcome.seconds for outcome in self.outcomes):.1f}",
        ]


def settings(text: str) -> dict[str, str]:
    """Of "density=0.02,bits=8"; the worker itself says what it does not know."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise argparse.ArgumentTypeError(f"{text!r} is not name=value,name=value")
    return {name: value for name, _, value in pairs}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=list(FULL.steps))
    parser.add_argument("policy", choices=POLICIES)
    parser.add_argument(
        "--try",
        dest="trials",
        action="append",
        type=settings,
        metavar="NAME=VALUE,...",
        help="settings to try; may be given again",
    )
    parser.add_argument(
        "--rate",
        dest="rates",
        action="append",
        type=float,
        help="a learning rate to try; may be given again (all of the model's)",
    )
    parser.add_argument("--workers", type=report.positive, default=FULL.team)
    parser.add_argument("--seeds", type=report.positive, default=1, help="how many (1)")
    parser.add_argument("--steps", type=report.positive, help="of each worker")
    parser.add_argument("--link", default=FAST, help=f"of every host ({FAST})")
    parser.add_argument("--json", type=Path, metavar="PATH", help="where to write all curves")
    return parser.parse_args()


def main(console: Console) -> None:
    options = parse_arguments()
    task, programs = TASKS[options.task], Programs.find()
    workers = 1 if options.policy == "one" else options.workers
    steps = options.steps or FULL.steps_of(task.name, options.policy, workers)
    points = [
        Spec(task.name, options.policy, workers, rate, steps, 0, FULL.evaluations, tried)
        for tried in options.trials or [SETTINGS.get(options.policy, {})]
        for rate in options.rates or task.rates
    ]
    trials: list[Trial] = []
    with (
        report.progress(console, "starting the workers", len(points)) as said,
        train_fleet.fleet(programs, workers, options.link) as fleet,
    ):
        for point in points:
            trials.append(Trial([run(fleet, point, seed) for seed in range(options.seeds)]))
            said("  ".join(trials[-1].cells))
    console.print(table(f"{task.name}, {options.policy}, {workers} workers, {steps} steps", trials))
    if options.json:
        document = {
            "machine": machine.facts(),
            "runs": [outcome.to_json() for trial in trials for outcome in trial.outcomes],
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def run(fleet: Fleet, point: Spec, seed: int) -> Outcome:
    spec = replace(point, seed=seed)
    return fleet.run_alone([spec])[0] if spec.policy in ALONE else fleet.run(spec)


def table(title: str, trials: list[Trial]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in ("settings", "rate", "at the end", "min to max", "bytes/sample", "seconds"):
        shown.add_column(heading, no_wrap=True)
    for trial in trials:
        shown.add_row(*trial.cells)
    return shown


if __name__ == "__main__":
    sys.exit(report.run("bench/tune.py", main))
