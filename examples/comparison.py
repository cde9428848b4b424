"""How the demos end: a table and a plot of one worker, of dense averaging, and of ours.

A report is a dictionary: name, colour, accuracy (of 1), seconds, bytes, and curve, a list of
{"seconds": ..., "accuracy": ...}. The first one is of one worker, the second of dense averaging.
One of another model has "unpruned", too: the bytes that it would have moved.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator
from rich import box
from rich.table import Table

PLAIN_WIDTH = 100  # columns where there is no terminal
# On a terminal, and on paper.
GREY, YELLOW = ("bright_black", "0.55"), ("yellow", "#e0a030")
CYAN, BLUE = ("cyan", "#1297a6"), ("blue", "#30529c")


def parse_arguments(description: str, folder: Path, quick: str) -> argparse.Namespace:
    """Of a demo in this folder."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument(
        "--plot",
        type=Path,
        default=folder / "out/demo.png",
        metavar="PATH",
        help=f"where to write the plot (examples/{folder.name}/out/demo.png)",
    )
    return parser.parse_args()


def table(reports: Sequence[dict]) -> Table:
    shown = Table(
        box=box.SIMPLE_HEAD, title="The same model, the same images", title_justify="left"
    )
    for heading in ("", "accuracy", "time", "times faster", "MB moved", "times fewer bytes"):
        shown.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    one, dense, *ours = reports
    for report in reports:
        # Of another model: what it would have moved unpruned is its own measure.
        other = "unpruned" in report
        comparable = report is not one and not other
        faster = f"{one['seconds'] / report['seconds']:.2f}" if comparable else ""
        most = report["unpruned"] if other else dense["bytes"]
        fewer = f"{most / report['bytes']:.0f}" if report in ours else ""
        moved = f"{report['bytes'] / 1e6:,.1f}" if report["bytes"] else "-"
        style = f"bold {report['colour'][0]}" if report in ours else ""
        cells = (f"{report['accuracy']:.2%}", f"{report['seconds']:.0f} s", faster, moved, fewer)
        shown.add_row(report["name"], *cells, style=style)
    return shown


def explain(one: dict, dense: dict, two: dict, steps: str) -> str:
    """Of two workers that shared one's `steps`."""
    points = 100 * (two["accuracy"] - one["accuracy"])
    return (
        f"Two workers, each with half of the images and half of the {steps}, needed "
        f"{two['seconds']:.0f} s instead of {one['seconds']:.0f} s, and are {abs(points):.1f} "
        f"points {'above' if points >= 0 else 'below'} one worker's accuracy. Sending everything "
        f"moved {dense['bytes'] / 1e6:,.0f} MB; pruned, quantised and entropy coded it was "
        f"{two['bytes'] / 1e6:,.1f} MB, the first and the last weights included."
    )


def draw(
    reports: Sequence[dict],
    title: str,
    path: Path,
    along: str = "seconds of training",
    measured: str = "accuracy on the test images (%)",
) -> None:
    """Who learned how fast, and who moved how much. `along`: what a curve's "seconds" are."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12, 5), layout="constrained", width_ratios=[1.6, 1]
    )
    for report in reports:
        seconds = [point["seconds"] for point in report["curve"]]
        accuracy = [100 * point["accuracy"] for point in report["curve"]]
        colour = report["colour"][1]
        # Who has no curve has no line in the legend either.
        label = report["name"] if seconds else None
        left.plot(seconds, accuracy, "o-", color=colour, label=label, markersize=4)
    highest = max(100 * report["accuracy"] for report in reports)
    left.set(xlabel=along, ylabel=measured)
    if along == "epochs":
        left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.set_ylim(max(0, highest - 15), highest + 1)
    left.set_title("Accuracy against time" if along.startswith("seconds") else "Accuracy")
    left.legend(loc="lower right")

    talking = reports[1:]
    megabytes = [report["bytes"] / 1e6 for report in talking]
    bars = right.bar(
        [report["name"].replace(", ", ",\n") for report in talking],
        megabytes,
        color=[report["colour"][1] for report in talking],
        width=0.55,
    )
    right.bar_label(bars, [f"{count:,.1f} MB" for count in megabytes], padding=3)
    right.set(yscale="log", ylabel="MB moved (logarithmic)")
    right.set_ylim(top=3 * max(megabytes))
    right.set_title(f"{megabytes[0] / max(megabytes[1], 1e-9):.0f} times fewer bytes")
    for axes in (left, right):
        axes.grid(axis="y", color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def problem_with(plot: Path) -> str | None:
    """What is in the way of it, before the work and not after it."""
    if plot.suffix not in (".png", ".pdf", ".svg"):
        return f"{plot} must end in .png, .pdf or .svg"
    try:
        plot.parent.mkdir(parents=True, exist_ok=True)
        plot.touch()
    except OSError as error:
        return f"the plot can't be written: {error}"
    return None
