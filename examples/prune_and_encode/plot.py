"""The demo's plot: how small a message gets, and what it leaves for later."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

MARKERS = ["o", "s", "^", "D", "v"]


def draw(result: dict, path: Path) -> None:
    rows = result["rows"]
    codes = list(dict.fromkeys(row["code"] for row in rows))
    densities = list(dict.fromkeys(row["density"] for row in rows))
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5.2), layout="constrained")
    colours = mpl.colormaps["viridis"].resampled(len(codes) + 1)
    for number, code in enumerate(codes):
        own = [row for row in rows if row["code"] == code]
        style = {"color": colours(number), "marker": MARKERS[number % 5], "label": code}
        sizes = [row["bytes"] / 1e3 for row in own]
        left.plot([100 * row["kept"] / result["entries"] for row in own], sizes, **style)
        right.plot(sizes, [row["error"] * 100 for row in own], **style)

    dense = result["dense_bytes"] / 1e3
    left.axhline(dense, color="0.4", linestyle="--", linewidth=1)
    left.annotate(
        f"dense float32: {dense:,.0f} KB",
        (0, dense),
        xycoords=("axes fraction", "data"),
        xytext=(6, -13),
        textcoords="offset points",
        color="0.3",
    )
    left.set(xscale="log", yscale="log", ylim=(None, dense * 1.6))
    left.set(xlabel="entries sent (% of the gradient)", ylabel="message (KB)")
    left.set_title("How small: size of one message")
    left.xaxis.set_major_locator(FixedLocator([100 * density for density in densities]))
    left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    left.xaxis.set_minor_locator(NullLocator())
    left.legend(title="value code", loc="lower right")

    for row in (row for row in rows if row["code"] == codes[0]):
        right.annotate(
            f"{100 * row['density']:g}% asked",
            (row["bytes"] / 1e3, row["error"] * 100),
            xytext=(8, 3),
            textcoords="offset points",
            color=colours(0),
            fontsize=9,
        )
    right.set(xscale="log", ylim=(0, 105))
    right.set_xlim(right=5 * max(row["bytes"] for row in rows) / 1e3)
    right.set(xlabel="message (KB)", ylabel="left in the residual (% of the norm)")
    right.set_title("At what price: what waits for a later message")
    right.legend(title="value code", loc="lower left")
    for axes, axis in ((left, left.yaxis), (right, right.xaxis)):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.grid(which="major", color="0.9")
        axes.set_axisbelow(True)
    figure.suptitle(
        f"Chunk-wise top-k of a gradient of {result['entries']:,} entries (Fashion-MNIST)"
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)
