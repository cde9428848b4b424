"""Measures training with several workers against one, dense averaging and TensorFlow's strategies.

Every worker and the aggregator are in network namespaces of their own, behind links of 100 Mbit/s
or 1 Gbit/s, and bytes are those that the interfaces have counted. Prints a table, draws the curves
and writes everything as JSON. A ratio that misses its target is shown as such and is no failure:
this is no test.
"""

import argparse
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import machine
import report
import train_fleet
import train_learning
import train_peers
import train_plots
import train_results
import train_speed
from report import BenchmarkError
from rich.console import Console
from train_fleet import Fleet
from train_learning import specs_of_one, specs_of_team
from train_models import TASKS
from train_plan import DEFAULT, FAST, FULL, PAIR, QUICK, QUICKEST, SLOW, TEAM, Size
from train_results import Results

PACKAGE = machine.ROOT / "python/tensorlightning"
PARTS = ("learning", "pair", "strategies", "speed")


@dataclass(frozen=True)
class Programs:
    tl_aggregator: Path = PACKAGE / "bin/tl-aggregator"
    library: Path = PACKAGE / "libtensorlightning_tf.so"

    def check(self) -> None:
        for file in (self.tl_aggregator, self.library):
            if not file.is_file():
                raise BenchmarkError(f"{file} is not there: run make bench-train")


class Benchmark:
    def __init__(self, programs: Programs, size: Size, said):
        self._programs, self._size, self._said = programs, size, said
        self.results = Results()
        self.free_cores: list[float] = []

    def run(self, parts: list[str]) -> None:
        size = self._size
        if {"learning", "pair", "speed"} & set(parts):
            team = TEAM if "learning" in parts else PAIR
            with train_fleet.fleet(self._programs, team, FAST) as fleet:
                if "learning" in parts:
                    for task in size.steps:
                        self._learn(fleet, task)
                if "speed" in parts:
                    for link in (SLOW, FAST):
                        self._look()
                        speed = train_speed.ours_and_silence(fleet, link, size)
                        self.results.speeds.append(speed)
                        self._said(f"speed at {link}")
                if "pair" in parts:
                    self._pair(fleet)
        if "strategies" in parts or "speed" in parts:
            self._strategies(parts)

    def _look(self) -> None:
        self.free_cores.append(machine.free_cores())

    def _learn(self, fleet: Fleet, name: str) -> None:
        size, task = self._size, TASKS[name]
        sides = self.results.sides.setdefault(name, {})
        # On one model all policies are compared, each at its best learning rate.
        tuned = name == "cnn" or len(size.steps) == 1
        policies = size.curves if tuned else (DEFAULT, QUICKEST, "dense")
        for policy in ("one", *dict.fromkeys(policies)):
            self._look()
            one = policy == "one"
            first = specs_of_one(task, size) if one else specs_of_team(task, policy, size)
            sides[policy] = train_learning.learn(fleet, first, size, size.grid, self._said)

    def _pair(self, fleet: Fleet) -> None:
        """One worker, then two, seed by seed: what disturbs one disturbs the other."""
        size, task = self._size, TASKS["cnn" if "cnn" in self._size.steps else "mlp"]
        sides = self.results.sides[task.name]
        fleet.set_rate(SLOW)
        ones, pairs = [], []
        for seed in size.seeds:
            self._look()
            rate = sides["one"].outcomes[0].spec.rate
            spec = train_learning.replace(specs_of_one(task, size), rate=rate, seed=seed)
            # The second core is as busy as with two workers.
            ones.append(fleet.run_alone([spec, spec])[0])
            rate = sides[QUICKEST].outcomes[0].spec.rate
            spec = specs_of_team(task, QUICKEST, size, PAIR)
            spec = train_learning.replace(
                spec,
                rate=rate,
                seed=seed,
                steps=size.pair_steps(task.name),
                evaluations=size.evaluations,
            )
            pairs.append(fleet.run(spec))
            self._said(f"{task.name}: one worker and two, {SLOW}")
        self.results.one = train_learning.Side("one", ones, ones[:1])
        self.results.pair = train_learning.Side(QUICKEST, pairs, pairs[:1])
        fleet.set_rate(FAST)

    def _strategies(self, parts: list[str]) -> None:
        size = self._size
        for strategy in train_peers.STRATEGIES:
            self._look()
            if "strategies" in parts:
                by_task = self.results.peers.setdefault(strategy, {})
                with train_peers.peers(strategy, TEAM, FAST) as (peers, _):
                    for name in size.peer_tasks:
                        peers.begin(name, TASKS[name].rate, 10 * size.peer_steps)
                        peers.train(2)
                        by_task[name] = peers.train(2 + size.peer_steps)
                self._said(f"{train_peers.STRATEGIES[strategy]}: bytes")
            if "speed" in parts:
                seen = train_speed.strategies(strategy, [FAST, SLOW], size)
                for speed in self.results.speeds:
                    speed.peers[strategy] = seen[speed.link]
                self._said(f"{train_peers.STRATEGIES[strategy]}: speed")


def remarks(results: Results, shown: list[report.Row], facts: dict) -> list[str]:
    lines = [
        f"{facts['seeds']} seeds on {facts['cores']} x {facts['cpu']}, congestion control "
        f"{facts['congestion_control']}, load {facts['load_average'][0]} at the start.",
        report.verdict(shown),
    ]
    for name, by_peer in train_results.whole_job(results).items():
        fewer = ", ".join(f"{ratio:.0f} ({peer})" for peer, ratio in by_peer.items())
        lines.append(f"{name}, first and last weights counted too, times fewer bytes: {fewer}.")
    if facts["quick"]:
        lines.append("The targets are for a full run: make bench-train.")
    if facts["free_cores"] < 1.8:
        lines.append(
            f"Only {facts['free_cores']} cores were free between the measures: others have "
            "disturbed them."
        )
    return lines


def parse_arguments() -> argparse.Namespace:
    parser = report.Parser("train", __doc__, 3, "one small model, one seed")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="a part of it; pair needs learning"
    )
    parser.add_argument("--plot", type=Path, metavar="PATH", help="where to draw the curves")
    options = parser.options()
    options.plot = options.plot or options.json.with_suffix(".png")
    return options


def main(console: Console) -> None:
    options = parse_arguments()
    programs = Programs()
    programs.check()
    size = QUICK if options.quick else FULL
    facts = machine.facts() | {
        "rounds": len(size.seeds),
        "seeds": len(size.seeds),
        "quick": options.quick,
        "congestion_control": congestion_control(),
    }
    parts = list(dict.fromkeys(options.only or PARTS))
    with report.progress(console, "starting the workers", size.announced(parts)) as said:
        benchmark = Benchmark(programs, size, said)
        benchmark.run(parts)
    results = benchmark.results
    facts["free_cores"] = round(statistics.median(benchmark.free_cores), 1)
    shown = train_results.rows(results)
    if results.sides:
        console.print(train_results.by_model(results))
    table = report.table(
        "Training with several workers", ["measured"], ["against", "which has", "ratio"], shown
    )
    if results.sides:
        train_plots.draw(results.sides, options.plot)
        facts["plot"] = options.plot.name
    document = train_results.to_json(results, shown, facts)
    report.finish(console, table, remarks(results, shown, facts), options.json, document)
    if results.sides:
        console.print(f"The curves are in {options.plot}", highlight=False, soft_wrap=True)


def congestion_control() -> str:
    command = ["sysctl", "-n", "net.ipv4.tcp_congestion_control"]
    ran = subprocess.run(command, capture_output=True, text=True)
    return ran.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(report.run("bench/train.py", main))
