"""Measures LeNet in a stock Caffe: four workers against one and against dense averaging.

Every worker is a stock caffe process with the plugin, in a network namespace of its own, and so is
the aggregator; bytes are those that the interfaces have counted, first and last weights among them.
Data is Fashion-MNIST. Each worker of a team takes three quarters of one's iterations, and
the learning rate falls to zero in a straight line. A ratio that misses its target is shown as such
and is no failure: this is no test.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import caffe_workers
import machine
import report
import train_hosts
from caffe_workers import Job, Outcome
from cluster.network import Network
from report import BenchmarkError, Ratio, Row
from rich.console import Console

Say = Callable[[str], None]
TEAM, PAIR = 4, 2
SLOW, FAST = "100mbit", "1gbit"
# The best of 0.01, 0.02 and 0.04 for one worker. A team diverges now and then from 0.06 on: there
# is no warm-up in Caffe.
RATE = {"one": 0.04, "elastic": 0.04, "dense": 0.04}


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    alone: int  # iterations of one worker
    iterations: int  # of each worker of a team
    tests: int
    seeds: int
    speed_rounds: int
    speed_iterations: int


FULL = Size(8000, 6000, 8, 2, 5, 600)
QUICK = Size(80, 40, 1, 1, 2, 20)


@dataclass
class Results:
    one: list[Outcome]
    elastic: list[Outcome]
    dense: list[Outcome]
    ours: list[float]  # samples/s of a pair over the slow link, by round
    silent: list[float]


def learn(network: Network, size: Size, seeds: int, results: Results, said: Say) -> None:
    alone = [Job("one", 1, RATE["one"], size.alone, size.tests, seed + 1) for seed in range(seeds)]
    for at in range(0, seeds, TEAM):
        results.one += caffe_workers.run_alone(network.hosts, alone[at : at + TEAM])
    for seed, outcome in enumerate(results.one):
        said(f"one worker, seed {seed}: {outcome.accuracy:.2f}%")
    for seed in range(seeds):
        for policy, found in (("dense", results.dense), ("elastic", results.elastic)):
            job = Job(policy, TEAM, RATE[policy], size.iterations, size.tests, seed + 1)
            found.append(caffe_workers.run(network.hosts, job))
            said(f"{TEAM} workers, {policy}, seed {seed}: {found[-1].accuracy:.2f}%")


def race(network: Network, size: Size, results: Results, said: Say) -> None:
    """A pair of workers over the slow link, in turns with one that is silent."""
    for host in network.hosts:
        host.set_rate(SLOW)
    for turn in range(size.speed_rounds):
        for policy, speeds in (("none", results.silent), ("elastic", results.ours)):
            job = Job(policy, PAIR, RATE["elastic"], size.speed_iterations, 0, 1)
            speeds.append(caffe_workers.run(network.hosts, job).samples_per_s)
        said(f"speed at {SLOW}, round {turn + 1}")


def mean(values) -> float:
    return statistics.fmean(values)


def behind(best: Sequence[float], ours: Sequence[float]) -> float:
    """In points; negative: ours is better."""
    return mean(best) - mean(ours)


def rows(results: Results) -> list[Row]:
    return (_learned(results) if results.elastic else []) + (
        _raced(results) if results.ours else []
    )


def _learned(results: Results) -> list[Row]:
    ours = [outcome.accuracy for outcome in results.elastic]
    dense = [outcome.accuracy for outcome in results.dense]
    best = [max(point.value for point in outcome.curve) for outcome in results.one]
    moved = mean(outcome.bytes_per_sample for outcome in results.elastic)
    moved_dense = mean(outcome.bytes_per_sample for outcome in results.dense)
    fewer = [
        d.bytes_per_sample / o.bytes_per_sample
        for d, o in zip(results.dense, results.elastic, strict=True)
    ]
    return [
        Row(
            Ratio("bytes_vs_dense_easgd", "dense EASGD, a sample", 50.0),
            [f"{moved:,.0f} B"],
            f"{moved_dense:,.0f} B",
            fewer,
        ),
        Row(
            Ratio("accuracy_behind_dense", "dense EASGD (points)", 0.5, at_most=True),
            [f"{mean(ours):.2f}"],
            f"{mean(dense):.2f}",
            [behind(dense, ours)],
        ),
        Row(
            Ratio("accuracy_behind_one", "one's best (points)", 0.5, at_most=True),
            [f"{mean(ours):.2f}"],
            f"{mean(best):.2f}",
            [behind(best, ours)],
        ),
    ]


def _raced(results: Results) -> list[Row]:
    return [
        Row(
            Ratio("speed_vs_silent", f"silence, {SLOW}", 0.9),
            [f"{statistics.median(results.ours):,.0f}/s"],
            f"{statistics.median(results.silent):,.0f}/s",
            [own / quiet for own, quiet in zip(results.ours, results.silent, strict=True)],
        )
    ]


def parse_arguments() -> argparse.Namespace:
    parser = report.Parser("caffe", __doc__, FULL.seeds, "a few iterations, one seed")
    parser.add_argument("--only", choices=("learning", "speed"), help="a part of it")
    return parser.options()


def main(console: Console) -> None:
    options = parse_arguments()
    size = QUICK if options.quick else FULL
    seeds = size.seeds if options.quick else options.rounds
    if reason := caffe_workers.lacking():
        raise BenchmarkError(reason)
    caffe_workers.prepare()
    facts = machine.facts() | {"quick": options.quick, "seeds": seeds, "links": [SLOW, FAST]}
    free = machine.free_cores()
    results = Results([], [], [], [], [])
    with (
        report.progress(console, "starting", 3 * seeds + size.speed_rounds) as said,
        train_hosts.network(TEAM + 1, FAST) as network,
    ):
        if options.only != "speed":
            learn(network, size, seeds, results, said)
        if options.only != "learning":
            race(network, size, results, said)
    facts["free_cores"] = free
    shown = rows(results)
    headings = ["against", "which has", "ratio"]
    table = report.table("LeNet in a stock Caffe", ["measured"], headings, shown)
    document = report.to_json(shown, facts) | {
        "at_most": [row.ratio.name for row in shown if row.ratio.at_most],
        "runs": {
            name: [outcome.to_json() for outcome in getattr(results, name)]
            for name in ("one", "dense", "elastic")
        },
        "samples_per_s": {"ours": results.ours, "silent": results.silent},
    }
    remarks = [
        f"{seeds} seeds on {facts['cores']} x {facts['cpu']}, {free} cores free at the start.",
        report.verdict(shown),
    ]
    report.finish(console, table, remarks, options.json, document)


if __name__ == "__main__":
    sys.exit(report.run("bench/caffe.py", main))
