"""Prunes and encodes the gradient of a real network: a table and a plot.

Trains a small network on Fashion-MNIST for a few steps, takes its gradient, and compresses it at
several densities and value codes with the kernels of this repository.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from network import CLASSES, DATA, Network, NoDataError, load
from plot import draw
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BATCH = 256
RATE = 0.1
PLAIN_WIDTH = 110  # columns of the table where there is no terminal
FULL_WIDTH = 98  # columns that the whole table takes


def train(folder: Path, hidden: list[int], steps: int, console: Console) -> np.ndarray:
    """The gradient of one batch after `steps` steps, as one flat vector."""
    images, labels = load(folder)
    network = Network([images.shape[1], *hidden, CLASSES])
    random = np.random.default_rng(2)
    losses = []
    columns = [TextColumn("training"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, console=console, transient=True) as bar:
        for _ in bar.track(range(steps + 1)):
            batch = random.integers(len(labels), size=BATCH)
            loss, gradient = network.gradient(images[batch], labels[batch])
            losses.append(loss)
            network.step(gradient, RATE)
    flat = np.concatenate([part.ravel() for part in gradient])
    console.print(
        f"Trained {flat.size:,} parameters on Fashion-MNIST for {steps} steps of {BATCH} images: "
        f"loss {losses[0]:.2f} -> {losses[-1]:.2f}.",
        highlight=False,
    )
    return flat


def compress(binary: Path, gradient: np.ndarray) -> dict:
    with tempfile.TemporaryDirectory(prefix="tensorlightning-demo-") as folder:
        file = Path(folder) / "gradient.f32"
        gradient.astype(np.float32).tofile(file)
        ran = subprocess.run([str(binary), str(file)], capture_output=True, text=True)
    if ran.returncode != 0:
        raise SystemExit(ran.stderr.strip() or f"{binary} ended with status {ran.returncode}")
    return json.loads(ran.stdout)


def size(count: float) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} KB"


def table(result: dict, width: int) -> Table:
    # heading, and what a row shows under it; a narrow terminal goes without the optional ones
    columns = [
        ("sent", lambda row: f"{row['kept'] / result['entries']:.2%}", True),
        ("size", lambda row: size(row["bytes"]), True),
        ("smaller", lambda row: f"{row['times_smaller']:.0f} x", True),
        ("GB/s", lambda row: f"{row['gb_per_s']:.1f}", True),
        ("of roof", lambda row: f"{row['share_of_roof']:.0%}", True),
        ("index bits", lambda row: f"{row['index_bits']:.2f}", False),
        ("entropy", lambda row: f"{row['entropy_bits']:.2f}", False),
        ("left", lambda row: f"{row['error']:.0%}", True),
    ]
    columns = [column for column in columns if column[2] or width >= FULL_WIDTH]
    shown = Table(
        box=box.SIMPLE_HEAD,
        title=f"{size(result['dense_bytes'])} of gradient, compressed on one thread",
        title_justify="left",
    )
    shown.add_column("asked", justify="right", no_wrap=True)
    shown.add_column("code", no_wrap=True)
    for heading, _, _ in columns:
        shown.add_column(heading, justify="right", no_wrap=True)
    for number, row in enumerate(result["rows"]):
        first = number == 0 or row["density"] != result["rows"][number - 1]["density"]
        if first and number > 0:
            shown.add_section()
        asked = f"{row['density']:.1%}" if first else ""
        shown.add_row(asked, row["code"], *(show(row) for _, show, _ in columns))
    return shown


def explain(result: dict) -> str:
    row = next(r for r in result["rows"] if r["density"] == 0.01 and r["code"] == "4 bits")
    roof = float(np.median([r["roof_gb_per_s"] for r in result["rows"]]))
    return (
        f"Keeping the largest 1% of every 4,096 entries in 4 bits each makes a message of "
        f"{size(row['bytes'])}, {row['times_smaller']:.0f} times smaller than the gradient. What "
        "is not sent stays in the residual and goes out later: in every row, sent and residual "
        "add up to the gradient to the bit.\n"
        "Sent may differ from asked: counts are rounded up per 4,096, and what rounds to zero in "
        "few bits is not sent. GB/s counts gradient read; the roof is r += g, measured in turns "
        f"with each row (median {roof:.1f} GB/s). Index bits say where a kept entry is, and "
        "entropy is the least that could do so were the positions random. Left is |residual| / "
        "|gradient|."
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small network and few steps")
    parser.add_argument(
        "--data", type=Path, default=DATA, metavar="FOLDER", help=f"Fashion-MNIST ({DATA})"
    )
    parser.add_argument(
        "--plot",
        type=Path,
        default=HERE / "out/demo.png",
        metavar="PATH",
        help="where to write the plot (examples/prune_and_encode/out/demo.png)",
    )
    parser.add_argument(
        "--binary",
        type=Path,
        default=ROOT / ".bazel/bin/examples/prune_and_encode/prune_and_encode",
        metavar="PATH",
        help="the example's program (what make demo-kernels builds)",
    )
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    # Bazel moves the link when something else is built meanwhile.
    binary = options.binary.resolve()
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    try:
        # Before the work, not after it.
        options.plot.parent.mkdir(parents=True, exist_ok=True)
        options.plot.touch()
    except OSError as error:
        print(f"demo.py: the plot can't be written: {error}", file=sys.stderr)
        return 1
    if options.plot.suffix not in (".png", ".pdf", ".svg"):
        print(f"demo.py: {options.plot} must end in .png, .pdf or .svg", file=sys.stderr)
        return 1
    if not binary.is_file():
        print(f"demo.py: {binary} is not there: run make demo-kernels", file=sys.stderr)
        return 1
    hidden, steps = ([128, 64], 3) if options.quick else ([2048, 1024], 40)
    try:
        gradient = train(options.data, hidden, steps, console)
    except NoDataError as error:
        print(f"demo.py: {error}", file=sys.stderr)
        return 1
    result = compress(binary, gradient)
    console.print(table(result, console.width))
    console.print(explain(result), highlight=False)
    draw(result, options.plot)
    console.print(f"\nThe plot is in {options.plot}", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("demo.py: interrupted")
