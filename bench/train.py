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
from collections.abc import Callable
from dataclasses import replace
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
from rich.markup import escape
from train_fleet import Fleet, Outcome, Programs
from train_learning import Side, spec_of
from train_models import TASKS
from train_peers import PeerOutcome, Peers
from train_plan import FAST, FULL, PAIR, PAIR_POLICY, QUICK, QUICKEST, SLOW, Size
from train_results import Results

PARTS = ("learning", "pair", "strategies", "speed")


class Benchmark:
    def __init__(self, programs: Programs, size: Size, said: Callable[[str], None]):
        self._programs, self._size, self._said = programs, size, said
        self.results = Results()
        self.free_cores: list[float] = []

    def run(self, parts: list[str]) -> None:
        size = self._size
        team = size.team if "learning" in parts else PAIR
        if set(parts) - {"strategies"}:
            with train_fleet.fleet(self._programs, team, FAST) as fleet:
                if "learning" in parts:
                    for task in size.steps:
                        self._learn(fleet, task)
                if "pair" in parts:
                    self._pair(fleet)
                if "speed" in parts:
                    self._speed(fleet)
        for strategy in train_peers.STRATEGIES:
            self._strategy(strategy, parts)

    def _look(self) -> None:
        self.free_cores.append(machine.free_cores())

    def _learn(self, fleet: Fleet, name: str) -> None:
        size, task = self._size, TASKS[name]
        sides: dict[str, Side] = {}
        for policy in ("one", *size.policies[name]):
            self._look()
            first = spec_of(task, policy, size, 1 if policy == "one" else size.team)
            tuned = policy in ("one", QUICKEST)
            sides[policy] = train_learning.learn(fleet, first, size, tuned, self._said)
        self.results.sides[name] = sides

    def _pair(self, fleet: Fleet) -> None:
        """One worker, then two, seed by seed: what disturbs one disturbs the other."""
        size = self._size
        task = TASKS["cnn" if "cnn" in size.steps else next(iter(size.steps))]
        known = self.results.sides.get(task.name, {})
        fleet.set_rate(SLOW)
        runs: dict[str, list[Outcome]] = {"one": [], PAIR_POLICY: []}
        for seed in size.seeds:
            self._look()
            for policy, workers in (("one", 1), (PAIR_POLICY, PAIR)):
                spec = replace(spec_of(task, policy, size, workers), seed=seed)
                if policy in known:
                    spec = replace(spec, rate=known[policy].outcomes[0].spec.rate)
                # One worker has the other core as busy as two workers have it.
                ran = fleet.run_alone([spec] * PAIR)[0] if policy == "one" else fleet.run(spec)
                runs[policy].append(ran)
            self._said(f"{task.name}: one worker and two, {SLOW}")
        self.results.one = Side("one", runs["one"], [])
        self.results.pair = Side(PAIR_POLICY, runs[PAIR_POLICY], [])

    def _speed(self, fleet: Fleet) -> None:
        for link in (SLOW, FAST):
            self._look()
            self.results.speeds.append(train_speed.ours_and_silence(fleet, link, self._size))
            self._said(f"speed at {link}")

    def _strategy(self, strategy: str, parts: list[str]) -> None:
        name, size = train_peers.STRATEGIES[strategy], self._size
        self._look()

        def measure_speed(peers: Peers) -> None:
            seen = train_speed.of_strategy(peers, [FAST, SLOW], size)
            for speed in self.results.speeds:
                speed.peers[strategy] = seen[speed.link]
            self._said(f"{name}: speed")

        if "strategies" in parts:
            by_task: dict[str, PeerOutcome] = {}
            with train_peers.peers(strategy, size.team, FAST) as peers:
                for task in size.steps:
                    peers.begin(task, TASKS[task].rates[0], 10 * size.peer_steps)
                    peers.train(2)
                    by_task[task] = peers.train(2 + size.peer_steps)
                self.results.peers[strategy] = by_task
                self._said(f"{name}: bytes")
                if "speed" in parts and size.team == PAIR:
                    measure_speed(peers)
        if "speed" in parts and (size.team != PAIR or "strategies" not in parts):
            with train_peers.peers(strategy, PAIR, FAST) as peers:
                measure_speed(peers)


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
    parser.add_argument("--only", action="append", choices=PARTS, help="a part of it")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="where to draw the curves")
    options = parser.options()
    options.plot = options.plot or options.json.with_suffix(".png")
    return options


def main(console: Console) -> None:
    options = parse_arguments()
    programs = Programs.find()
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
        try:
            benchmark.run(parts)
        except BenchmarkError as error:
            # An hour of results is not thrown away for the part that failed.
            if not (benchmark.results.sides or benchmark.results.speeds):
                raise
            console.print(f"[yellow]Not all was measured: {escape(str(error))}[/]")
    results = benchmark.results
    facts["free_cores"] = round(statistics.median(benchmark.free_cores), 1)
    shown = train_results.rows(results)
    if results.sides:
        console.print(train_results.by_model(results))
    table = report.table(
        "Training with several workers", ["measured"], ["against", "which has", "ratio"], shown
    )
    if results.sides:
        facts["plot"] = options.plot.name
    document = train_results.to_json(results, shown, facts)
    # First what took an hour to find out.
    report.finish(console, table, remarks(results, shown, facts), options.json, document)
    if results.sides:
        options.plot.parent.mkdir(parents=True, exist_ok=True)
        train_plots.draw(results.sides, options.plot)
        console.print(f"The curves are in {options.plot}", highlight=False, soft_wrap=True)


def congestion_control() -> str:
    command = ["sysctl", "-n", "net.ipv4.tcp_congestion_control"]
    ran = subprocess.run(command, capture_output=True, text=True)
    return ran.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(report.run("bench/train.py", main))
