"""Measures training on a Spark cluster: tl.spark.ElasticTrainer beside elephas, and feeding.

Driver, master and two workers of a standalone cluster are each in a network namespace of their own,
behind links of 100 Mbit/s. Data is Fashion-MNIST, the model a small CNN, the same for all; samples
and seeds are the same, too. Every byte is counted that interfaces send from fit() to its end: first
and last weights, and what Spark has to say.

elephas is as it is documented, in all of its modes. Its synchronous mode averages once an epoch;
its asynchronous one goes to a parameter server over HTTP, either with each batch, with which it
learns best, or once an epoch. The former is compared with a training of ours that exchanges more
often, too; spark_plan.py has all settings. Rows are read from Parquet (elephas has them in the
executors' memory before it begins); for "from the driver" both have arrays there, as in elephas'
documentation. Workers that never exchange show what could be had at best.

A ratio that misses its target is shown as such and is no failure: this is no test.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import machine
import report
import spark_cluster
import spark_data
import spark_peer
import spark_results
from report import BenchmarkError
from rich.console import Console
from spark_cluster import Driver, SparkHosts
from spark_data import WORKERS
from spark_plan import (
    ELEPHAS_SIDES,
    FULL,
    LINK,
    OUR_SIDES,
    OURS,
    QUICK,
    SIDES,
    SYNC,
    Size,
)
from spark_results import Results
from tensorlightning import _library
from tensorlightning.launch.programs import find_program
from train import congestion_control


class Benchmark:
    def __init__(self, size: Size, seeds: int, folder: Path, said: Callable[[str], None]):
        self._size, self._seeds, self._said = size, seeds, said
        self._rows, self._few_rows = folder / "rows", folder / "few-rows"
        self.results = Results()
        self.free_cores: list[float] = []

    def run(self, peer: Path | None) -> None:
        """`peer`: a Python that has elephas."""
        spark_data.write_parquet(self._rows, self._size.rows)
        spark_data.write_parquet(self._few_rows, self._size.warm_rows)
        with spark_cluster.cluster(LINK) as spark:
            for seed in range(1, self._seeds + 1):
                self._ours(spark, seed)
                if peer is not None:
                    self._elephas(spark, seed, peer)

    def _ours(self, spark: SparkHosts, seed: int) -> None:
        with spark.driver("spark_ours.py") as driver:
            self._warm_up(driver, OURS)
            if seed == 1:
                self._feed(driver)
            for side in OUR_SIDES:
                self._fit(driver, side, seed)

    def _elephas(self, spark: SparkHosts, seed: int, peer: Path) -> None:
        with spark.driver("spark_elephas.py", peer) as driver:
            self._warm_up(driver, SYNC)
            for side in ELEPHAS_SIDES:
                self._fit(driver, side, seed)

    def _warm_up(self, driver: Driver, side: str) -> None:
        """Executors have imported TensorFlow then, and kept the Python that has."""
        self._said(f"{side.partition('_')[0]}: warming up")
        size = self._size
        driver.fit(side, seed=0, test_rows=1, **self._request(side, self._few_rows, size.warm_rows))

    def _fit(self, driver: Driver, side: str, seed: int) -> None:
        self.free_cores.append(machine.free_cores())
        size = self._size
        one = driver.fit(
            side, seed=seed, test_rows=size.test_rows, **self._request(side, self._rows, size.rows)
        )
        self.results.add(one)
        self._said(
            f"seed {seed}, {side}: {one.samples_per_s:,.0f} samples/s, "
            f"{one.bytes_per_sample:,.1f} bytes/sample, {one.accuracy:.2f}%"
        )

    def _request(self, side: str, folder: Path, rows: int) -> dict:
        size, how = self._size, SIDES[side]
        return {
            "folder": str(folder),
            "rows": rows,
            "epochs": 1 if rows == size.warm_rows else size.epochs,
            "batch": how.batch,
            "rate": how.rate,
            "steps": size.steps(WORKERS, how.batch),
            "settings": how.settings,
        }

    def _feed(self, driver: Driver) -> None:
        size = self._size
        self.results.feeding = driver.ask(
            do="feed",
            folder=str(self._rows),
            copies=size.feed_copies,
            rounds=size.feed_rounds,
            batch=size.feed_batch,
        )
        self._said("feeding")


def remarks(results: Results, shown: list[report.Row], facts: dict) -> list[str]:
    lines = [
        f"{facts['seeds']} seeds of {facts['samples']:,} samples on {facts['cores']} x "
        f"{facts['cpu']}, congestion control {facts['congestion_control']}, load "
        f"{facts['load_average'][0]} at the start.",
        report.verdict(shown),
    ]
    if results.skipped:
        lines.append(f"Nothing of elephas was measured. {results.skipped}")
    if facts["quick"]:
        lines.append("The targets are for a full run: make bench-spark.")
    if facts["free_cores"] < 1.8:
        lines.append(
            f"Only {facts['free_cores']} cores were free between the measures: others have "
            "disturbed them."
        )
    return lines


def check() -> None:
    """That all is there, before anything is begun."""
    try:
        _library.path()
        find_program("tl-aggregator")
    except (ImportError, LookupError) as error:
        raise BenchmarkError(f"{error} (make bench-spark does all of it)") from error
    if reason := spark_cluster.lacking():
        raise BenchmarkError(reason)


def parse_arguments() -> argparse.Namespace:
    return report.Parser("spark", __doc__, FULL.seeds, "few rows, one epoch, one seed").options()


def main(console: Console) -> None:
    options = parse_arguments()
    check()
    size = QUICK if options.quick else FULL
    seeds = size.seeds if options.quick else options.rounds
    facts = machine.facts() | {
        "quick": options.quick,
        "seeds": seeds,
        "samples": size.rows * size.epochs,
        "congestion_control": congestion_control(),
    }
    peer, skipped = None, ""
    try:
        peer = spark_peer.python()
    except spark_peer.PeerMissingError as error:
        skipped = str(error)
    steps = 1 + seeds * (len(OUR_SIDES) + len(ELEPHAS_SIDES) + 2)
    with (
        tempfile.TemporaryDirectory(prefix="tensorlightning-bench-") as folder,
        report.progress(console, "starting the cluster", steps) as said,
    ):
        benchmark = Benchmark(size, seeds, Path(folder), said)
        benchmark.results.skipped = skipped
        benchmark.run(peer)
    results = benchmark.results
    facts["free_cores"] = round(statistics.median(benchmark.free_cores), 1)
    shown = spark_results.rows(results)
    console.print(spark_results.by_side(results))
    headings = ["against", "which has", "ratio"]
    table = report.table("Training on Spark", ["measured"], headings, shown)
    document = spark_results.to_json(results, shown, facts)
    report.finish(console, table, remarks(results, shown, facts), options.json, document)


if __name__ == "__main__":
    sys.exit(report.run("bench/spark.py", main))
