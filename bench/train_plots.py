"""Curves of the benchmark of training."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from train_learning import Side
from train_results import goal

COLOURS = {
    "one": "0.5",
    "elastic": "#1297a6",
    "local": "#7a4fb0",
    "gradient": "#c2452d",
    "gradient-async": "#d98b3a",
    "dense": "#e0b030",
}


def draw(sides: dict[str, dict[str, Side]], path: Path) -> None:
    """For every model, by steps of each worker and by bytes a worker's sample has cost."""
    figure, all_axes = plt.subplots(
        len(sides), 2, figsize=(13, 4.2 * len(sides)), layout="constrained", squeeze=False
    )
    for (task, by_policy), (left, right) in zip(sides.items(), all_axes, strict=True):
        _by_steps(left, task, by_policy)
        _by_bytes(right, by_policy)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _by_steps(axes, task: str, by_policy: dict[str, Side]) -> None:
    one = by_policy["one"]
    for policy, side in by_policy.items():
        workers = side.outcomes[0].spec.workers
        label = "one worker" if policy == "one" else f"{workers} workers, {policy}"
        axes.plot(side.steps, side.values, "o-", color=COLOURS[policy], label=label, markersize=3)
        for outcome in side.outcomes:
            values = [point.value for point in outcome.curve]
            axes.plot(side.steps, values, color=COLOURS[policy], alpha=0.2, linewidth=0.8)
    axes.axhline(goal(one), color="0.5", linestyle="--", linewidth=1)
    axes.set(xlabel="steps of each worker", ylabel=_label(one))
    axes.set_title(f"{task}: one worker's plateau is dashed")
    _finish(axes, by_policy)


def _by_bytes(axes, by_policy: dict[str, Side]) -> None:
    for policy, side in by_policy.items():
        if policy == "one":
            continue
        total = side.bytes_per_sample * side.outcomes[0].spec.samples / 1e6
        moved = [total * step / side.steps[-1] for step in side.steps]
        axes.plot(moved, side.values, "o-", color=COLOURS[policy], label=policy, markersize=3)
    axes.set(xscale="log", xlabel="MB on the network", ylabel=_label(by_policy["one"]))
    axes.set_title("what it cost")
    _finish(axes, by_policy)


def _label(side: Side) -> str:
    return "accuracy (%)" if side.task.more_is_better else "bits per character"


def _finish(axes, by_policy: dict[str, Side]) -> None:
    plateau = by_policy["one"].plateau
    if by_policy["one"].task.more_is_better:
        axes.set_ylim(plateau - 12, plateau + 2.5)
    else:
        axes.set_ylim(plateau * 0.95, plateau * 1.4)
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.legend(fontsize=8)
