"""Trains LeNet on Fashion-MNIST with the stock caffe binary: one worker, two that send everything,
two and four that don't. Ends with a table and a plot. About three minutes on two cores.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import data
from comparison import (
    BLUE,
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
CAFFE = ROOT / ".caffe/bin/caffe"
PLUGIN = ROOT / "python/tensorlightning/libtensorlightning_caffe.so"
RUN_SECONDS = 900
ITERATIONS = 2000  # of all workers together
TESTS = 8  # in each training


@dataclass(frozen=True)
class Contestant:
    name: str
    workers: int
    settings: tuple[str, ...]
    colour: tuple[str, str]

    @property
    def command(self) -> str:
        options = " ".join(["-np", str(self.workers), *self.settings])
        return f"tlrun {options} caffe train --solver=solver.prototxt"


CONTESTANTS = (
    Contestant("one worker", 1, (), GREY),
    Contestant("2 workers, dense averaging", 2, ("--policy", "dense"), YELLOW),
    Contestant("2 workers, TensorLightning", 2, (), CYAN),
    Contestant("4 workers, TensorLightning", 4, (), BLUE),
)


def write_solver(workers: int, iterations: int, tests: int, path: Path) -> None:
    """The example's, for a worker's part of the iterations."""
    own = iterations // workers
    text = (HERE / "solver.prototxt").read_text()
    for field, value in (("max_iter", own), ("test_interval", own // tests)):
        text = re.sub(rf"^{field}: \d+$", f"{field}: {value}", text, flags=re.MULTILINE)
    path.write_text(text)


def train(who: Contestant, iterations: int, tests: int, console: Console) -> dict:
    """Its report, from what Caffe has logged."""
    colour = who.colour[0]
    console.print(Rule(f"[bold {colour}]{who.name}[/]", style=colour, align="left"))
    console.print(f"[dim]$ {who.command}[/]", highlight=False)
    solver = HERE / "out" / f"solver_{who.workers}.prototxt"
    write_solver(who.workers, iterations, tests, solver)
    launcher = [sys.executable, "-m", "tensorlightning.launch", "-np", str(who.workers)]
    caffe = [str(CAFFE), "train", f"--solver={solver}"]
    ran = subprocess.run(
        [*launcher, *who.settings, *caffe],
        cwd=HERE,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=RUN_SECONDS,
    )
    if ran.returncode != 0:
        print(ran.stderr[-3000:], file=sys.stderr)
        raise SystemExit(f"demo.py: {who.command} ended with status {ran.returncode}")
    curve = read_curve(ran.stderr)
    moved = re.findall(r'"bytes_(?:sent|received)":(\d+)', ran.stderr)
    for point in curve:
        console.print(f"  {point['seconds']:6.1f} s  accuracy {point['accuracy']:.2%}")
    return {
        "name": who.name,
        "colour": who.colour,
        "curve": curve,
        "accuracy": curve[-1]["accuracy"],
        "seconds": curve[-1]["seconds"],
        "bytes": sum(map(int, moved)) if who.workers > 1 else 0,
    }


def read_curve(log: str) -> list[dict]:
    """Accuracies and when they were reached; the time of testing is not that of training."""
    curve, begin, testing, tested = [], None, None, 0.0
    for line in log.splitlines():
        found = re.match(r"\[0\] I\d+ (\d+:\d+:\d+\.\d+) ", line)
        if not found:
            continue
        now = datetime.strptime(found[1], "%H:%M:%S.%f")
        if "Testing net" in line:
            testing = now
        elif accuracy := re.search(r"Test net output #\d+: accuracy = ([\d.e-]+)", line):
            begin = begin or testing
            # Midnight may be in between.
            seconds = (testing - begin).total_seconds() % 86400 - tested
            curve.append({"seconds": seconds, "accuracy": float(accuracy[1])})
            tested += (now - testing).total_seconds() % 86400
    return curve


def problem(plot: Path) -> str | None:
    if not CAFFE.exists():
        return f"{CAFFE} is not there: run make demo-caffe"
    if "TL_CAFFE_PLUGIN" not in os.environ and not PLUGIN.is_file():
        return f"{PLUGIN} is not there: run make demo-caffe"
    return problem_with(plot)


def main() -> int:
    options = parse_arguments(__doc__, HERE, "a few iterations")
    if reason := problem(options.plot):
        print(f"demo.py: {reason}", file=sys.stderr)
        return 1
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    console.print(
        Panel(
            "LeNet, 431,080 parameters, learns to tell clothes apart (Fashion-MNIST, 60,000 "
            "images), in a stock Caffe: with one worker, then with several that average their "
            "models.\nOne line was added to solver.prototxt:",
            title="[bold]TensorLightning[/]",
            border_style="cyan",
            title_align="left",
        )
    )
    console.print(Syntax("tensorlightning_param { }", "protobuf", background_color="default"))
    data.make(HERE / "out")
    iterations, tests = (80, 1) if options.quick else (ITERATIONS, TESTS)
    reports = [train(who, iterations, tests, console) for who in CONTESTANTS]
    console.print(table(reports))
    console.print(explain(*reports[:3], "iterations"), highlight=False)
    draw(reports, "LeNet on Fashion-MNIST, stock Caffe, two cores", options.plot)
    console.print(f"\nThe plot is in {options.plot}", highlight=False, soft_wrap=True)
    console.print("The files are in examples/caffe_lenet", highlight=False)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("demo.py: interrupted")
