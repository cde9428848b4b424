"""Runs the benchmark binary and numpy in rounds, and gathers what they say.

The binary takes care that a kernel and its roof are measured side by side (bench/versus.h). A round
is one run of it, in fresh memory; what is reported is the median over the rounds.
"""

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from machine import free_cores
from report import BenchmarkError, Ratio, failure

TOPK_VS_NUMPY = Ratio("topk_vs_numpy", "np.argpartition", 10.0)
# What is divided by numpy's time.
TOPK = Ratio("topk_vs_nth", "std::nth_element", 5.0)

RATIOS = [
    Ratio("prune_1pct", "r += g", 0.85),
    Ratio("prune_10pct", "r += g", 0.85),
    Ratio("prune_1pct_checked", "r += g"),
    Ratio("compress_1pct", "r += g"),
    Ratio("fused_1pct", "triad", 0.5),
    Ratio("threads2", "one thread", 1.6),
    Ratio("reply_3pct", "sum of C - c"),
    Ratio("decode_1pct", "scatter-add", 0.5),
    Ratio("decode_from_bytes_1pct", "scatter-add"),
    Ratio("topk_vs_nth_10pct", "std::nth_element"),
    TOPK,
    TOPK_VS_NUMPY,
]


@dataclass
class Series:
    """One ratio over the rounds."""

    ms: list[float] = field(default_factory=list)
    roof_ms: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    # What one call moves or applies.
    bytes: float = 0
    entries: float = 0

    def add(self, counters: dict) -> None:
        self.ms.append(counters["ms"])
        self.roof_ms.append(counters["roof_ms"])
        self.ratios.append(counters["ratio"])
        self.bytes, self.entries = counters["bytes"], counters["entries"]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def rate(self) -> str:
        seconds = statistics.median(self.ms) / 1e3
        if self.bytes:
            return f"{self.bytes / seconds / 1e9:.1f} GB/s"
        return f"{self.entries / seconds / 1e6:.0f} M entries/s"


@dataclass
class Measured:
    series: dict[str, Series]
    free_cores: list[float]
    instruction_set: str = ""


def run_binary(
    binary: Path, choice: str, entries: int, finished: Callable[[str], None]
) -> tuple[dict[str, dict], dict]:
    """Counters of the chosen benchmarks (a regular expression, after a minus for all others), by
    name, and the binary's facts. Calls finished(name) as each ends."""
    if not binary.is_file():
        raise BenchmarkError(f"{binary} is not there: run make bench-kernels")
    with tempfile.TemporaryDirectory(prefix="tensorlightning-bench-") as folder:
        report = Path(folder) / "report.json"
        said = Path(folder) / "stderr"
        command = [str(binary), f"--benchmark_filter={choice}", f"--benchmark_out={report}"]
        environment = os.environ | {"TL_BENCH_ENTRIES": str(entries)}
        with (
            said.open("w") as errors,
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as ran,
        ):
            for line in ran.stdout:
                if "/iterations:" in line:
                    finished(line.split("/")[0])
        if ran.returncode != 0:
            raise failure(binary, ran.returncode, said.read_text())
        parsed = json.loads(report.read_text())
    if "compiled" not in parsed["context"]:
        raise BenchmarkError(f"{binary} was compiled without -c opt: run make bench-kernels")
    counters = {entry["name"].split("/")[0]: entry for entry in parsed["benchmarks"]}
    return counters, parsed["context"]


def numpy_top_k(values: np.ndarray, density: float = 0.01, calls: int = 5) -> float:
    """CPU milliseconds of the usual way to the top k by magnitude in numpy. The best of a few
    calls: numpy takes fresh memory for every one, which on a shared machine can cost several times
    the work itself, and that is not to flatter us."""
    kept = max(1, int(density * values.size))

    def call() -> float:
        start = time.process_time()
        magnitudes = np.abs(values)
        indices = np.argpartition(magnitudes, values.size - kept)[-kept:]
        _ = indices, values[indices]
        return (time.process_time() - start) * 1e3

    return min(call() for _ in range(calls))


def against_numpy(topk: dict, values: np.ndarray) -> dict:
    numpy_ms = numpy_top_k(values)
    return topk | {"roof_ms": numpy_ms, "ratio": numpy_ms / topk["ms"]}


def run_rounds(
    binary: Path, entries: int, rounds: int, progress: Callable[[str], None]
) -> Measured:
    """Calls progress(what) len(RATIOS) times a round."""
    measured = Measured({ratio.name: Series() for ratio in RATIOS}, [])
    values = np.random.default_rng(1).standard_normal(entries, dtype=np.float32)
    for number in range(1, rounds + 1):

        def finished(name: str, number: int = number) -> None:
            progress(f"round {number}/{rounds}: {name}")

        measured.free_cores.append(free_cores())
        # Top-k at the end and by itself, so that numpy comes right after it.
        counters, context = run_binary(binary, f"-{TOPK.name}$|{TOPK.name}/", entries, finished)
        last, _ = run_binary(binary, f"^{TOPK.name}/", entries, finished)
        counters |= last
        counters[TOPK_VS_NUMPY.name] = against_numpy(counters[TOPK.name], values)
        finished(TOPK_VS_NUMPY.name)
        for ratio in RATIOS:
            measured.series[ratio.name].add(counters[ratio.name])
        measured.instruction_set = context["instruction_set"]
    return measured
