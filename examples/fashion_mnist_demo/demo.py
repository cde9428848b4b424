"""Trains a CNN on Fashion-MNIST three times: with one worker, with two, and with two that send
everything. Ends with a table and a plot. Three to five minutes on two cores.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from plot import draw
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = ROOT / "python/tensorlightning"
PLAIN_WIDTH = 100  # columns where there is no terminal
RUN_SECONDS = 600

ONE_LINE = "model.fit(x, y, callbacks=[tl.Elastic()])"


@dataclass(frozen=True)
class Contestant:
    name: str
    workers: int
    settings: tuple[str, ...]
    colour: str

    @property
    def command(self) -> str:
        return " ".join(["tlrun", "-np", str(self.workers), *self.settings, "python train.py"])


ONE = Contestant("one worker", 1, (), "bright_black")
DENSE = Contestant("2 workers, dense averaging", 2, ("--policy", "dense"), "yellow")
OURS = Contestant("2 workers, TensorLightning", 2, (), "cyan")


def train(who: Contestant, epochs: float, console: Console) -> dict:
    """Its report. What tlrun shows meanwhile is part of the demo."""
    console.print(Rule(f"[bold {who.colour}]{who.name}[/]", style=who.colour, align="left"))
    console.print(f"[dim]$ {who.command}[/]", highlight=False)
    with tempfile.TemporaryDirectory(prefix="tensorlightning-demo-") as folder:
        program = [sys.executable, str(HERE / "train.py"), f"--epochs={epochs}"]
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "tensorlightning.launch", "-np", str(who.workers)),
                *who.settings,
                *(*program, f"--results={folder}"),
            ],
            env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
            timeout=RUN_SECONDS,
        )
        if ran.returncode != 0:
            raise SystemExit(f"demo.py: {who.command} ended with status {ran.returncode}")
        ranks = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("rank-*.json"))]
    moved = sum(rank["bytes"] for rank in ranks) if who.workers > 1 else 0
    seconds = max(rank["seconds"] for rank in ranks)
    return ranks[0] | {"bytes": moved, "seconds": seconds, "name": who.name}


def table(reports: list[dict]) -> Table:
    shown = Table(
        box=box.SIMPLE_HEAD, title="The same model, the same images", title_justify="left"
    )
    for heading in ("", "accuracy", "time", "times faster", "MB moved", "times fewer bytes"):
        shown.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    one, dense, ours = reports
    for report, who in zip(reports, (ONE, DENSE, OURS), strict=True):
        faster = f"{one['seconds'] / report['seconds']:.2f}" if report is not one else ""
        fewer = f"{dense['bytes'] / report['bytes']:.0f}" if report is ours else ""
        moved = f"{report['bytes'] / 1e6:,.1f}" if report["bytes"] else "-"
        style = f"bold {who.colour}" if report is ours else ""
        cells = (f"{report['accuracy']:.2%}", f"{report['seconds']:.0f} s", faster, moved, fewer)
        shown.add_row(who.name, *cells, style=style)
    return shown


def explain(reports: list[dict]) -> str:
    one, dense, ours = reports
    points = 100 * (ours["accuracy"] - one["accuracy"])
    return (
        f"Two workers, each with half of the images and half of the steps, needed "
        f"{ours['seconds']:.0f} s instead of {one['seconds']:.0f} s, and are {abs(points):.1f} "
        f"points {'above' if points >= 0 else 'below'} one worker's accuracy. Sending everything "
        f"moved {dense['bytes'] / 1e6:,.0f} MB; pruned, quantised and entropy coded it was "
        f"{ours['bytes'] / 1e6:,.1f} MB, the first and the last weights included."
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small part of the images, once")
    parser.add_argument(
        "--plot",
        type=Path,
        default=HERE / "out/demo.png",
        metavar="PATH",
        help="where to write the plot (examples/fashion_mnist_demo/out/demo.png)",
    )
    return parser.parse_args()


def problem(plot: Path) -> str | None:
    """What is in the way, before the work and not after it."""
    if plot.suffix not in (".png", ".pdf", ".svg"):
        return f"{plot} must end in .png, .pdf or .svg"
    try:
        plot.parent.mkdir(parents=True, exist_ok=True)
        plot.touch()
    except OSError as error:
        return f"the plot can't be written: {error}"
    library = Path(os.environ.get("TL_TF_LIBRARY", PACKAGE / "libtensorlightning_tf.so"))
    if not library.is_file():
        return f"{library} is not there: run make demo"
    return None


def main() -> int:
    options = parse_arguments()
    if reason := problem(options.plot):
        print(f"demo.py: {reason}", file=sys.stderr)
        return 1
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    console.print(
        Panel(
            "A CNN of 108,874 parameters learns to tell clothes apart (Fashion-MNIST, 60,000 "
            "images): with one worker, then with two that average their models.\n"
            "One line was added to an ordinary Keras program:",
            title="[bold]TensorLightning[/]",
            border_style="cyan",
            title_align="left",
        )
    )
    console.print(Syntax(ONE_LINE, "python", background_color="default"))
    epochs = 0.05 if options.quick else 5
    reports = [train(who, epochs, console) for who in (ONE, DENSE, OURS)]
    console.print(table(reports))
    console.print(explain(reports), highlight=False)
    draw(reports, options.plot)
    console.print(f"\nThe plot is in {options.plot}", highlight=False, soft_wrap=True)
    console.print("The program is in examples/fashion_mnist_demo/train.py", highlight=False)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("demo.py: interrupted")
