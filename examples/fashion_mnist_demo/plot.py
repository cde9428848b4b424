"""The demo's plot: who learned how fast, and who moved how much."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

COLOURS = ["0.55", "#e0a030", "#1297a6"]


def draw(reports: list[dict], path: Path) -> None:
    """`reports`: of one worker, of dense averaging and of ours."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12, 5), layout="constrained", width_ratios=[1.6, 1]
    )
    for report, colour in zip(reports, COLOURS, strict=True):
        seconds = [point["seconds"] for point in report["curve"]]
        accuracy = [100 * point["accuracy"] for point in report["curve"]]
        left.plot(seconds, accuracy, "o-", color=colour, label=report["name"], markersize=4)
    highest = max(100 * report["accuracy"] for report in reports)
    left.set(xlabel="seconds of training", ylabel="accuracy on the test images (%)")
    left.set_ylim(max(0, highest - 15), highest + 1)
    left.set_title("Accuracy against time")
    left.legend(loc="lower right")

    talking = list(zip(reports, COLOURS, strict=True))[1:]
    megabytes = [report["bytes"] / 1e6 for report, _ in talking]
    bars = right.bar(
        [report["name"].partition(", ")[2] for report, _ in talking],
        megabytes,
        color=[colour for _, colour in talking],
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
    figure.suptitle("A CNN on Fashion-MNIST, one core per worker")
    figure.savefig(path, dpi=130)
    plt.close(figure)
