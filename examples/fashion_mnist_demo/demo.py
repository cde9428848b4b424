"""Trains a CNN on Fashion-MNIST three times: with one worker, with two, and with two that send
everything. Ends with a table and a plot. Three to five minutes on two cores.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from comparison import (
    CYAN,
    GREY,
    PLAIN_WIDTH,
    YELLOW,
    draw,
    explain,
    parse_arguments,
    problem_with,
    table,
)

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = ROOT / "python/tensorlightning"
RUN_SECONDS = 600

ONE_LINE = "model.fit(x, y, callbacks=[tl.Elastic()])"


@dataclass(frozen=True)
class Contestant:
    name: str
    workers: int
    settings: tuple[str, ...]
    colour: tuple[str, str]

    @property
    def command(self) -> str:
        return " ".join(["tlrun", "-np", str(self.workers), *self.settings, "python train.py"])


ONE = Contestant("one worker", 1, (), GREY)
DENSE = Contestant("2 workers, dense averaging", 2, ("--policy", "dense"), YELLOW)
OURS = Contestant("2 workers, TensorLightning", 2, (), CYAN)


def train(who: Contestant, epochs: float, console: Console) -> dict:
    """Its report. What tlrun shows meanwhile is part of the demo."""
    colour = who.colour[0]
    console.print(Rule(f"[bold {colour}]{who.name}[/]", style=colour, align="left"))
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
    said = {"name": who.name, "colour": who.colour}
    return ranks[0] | {"bytes": moved, "seconds": seconds} | said


def problem(plot: Path) -> str | None:
    library = Path(os.environ.get("TL_TF_LIBRARY", PACKAGE / "libtensorlightning_tf.so"))
    if not library.is_file():
        return f"{library} is not there: run make demo"
    return problem_with(plot)


def main() -> int:
    options = parse_arguments(__doc__, HERE, "a small part of the images, once")
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
    console.print(explain(*reports[:3], "steps"), highlight=False)
    draw(reports, "A CNN on Fashion-MNIST, one core per worker", options.plot)
    console.print(f"\nThe plot is in {options.plot}", highlight=False, soft_wrap=True)
    console.print("The program is in examples/fashion_mnist_demo/train.py", highlight=False)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("demo.py: interrupted")
