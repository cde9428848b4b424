"""A loop that computes while exchanges go over a link of 10 Mbit/s, beside the loop alone."""

import contextlib
import sys
from collections.abc import Iterator
from statistics import median

import machine
from comm_programs import Programs, Wrap, here, started
from comm_series import Series

# The networks of the tests are good for benchmarks too.
sys.path.insert(0, str(machine.ROOT / "tests"))
from cluster.network import Network

RATE = "10mbit"


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[str, str, Wrap, Wrap]]:
    """The link; the server's address; how to run commands at its end and at the other."""
    if reason := Network.why_not():
        yield f"loopback, for {reason}", "127.0.0.1", here, here
        return
    with Network(2, rate=RATE) as network:
        server, worker = network.hosts
        yield RATE, server.address, server.namespace.wrap, worker.namespace.wrap


def overlap(
    programs: Programs, width: int, turns: int, turn_seconds: float, step_ms: int
) -> Series:
    """Steps per second on the processor of the computing thread."""
    layout = f"model:{width * width}"
    with (
        two_hosts() as (link, address, at_server, at_worker),
        # Nobody but these hosts can reach it.
        programs.aggregator("--open-to-anybody", host=address, wrap=at_server) as (endpoint, _),
        # Somebody whose changes come back in replies. It is at the server's end of the link.
        started(
            programs.load(endpoint, 1, layout, "--period=1", "--step=100ms", "--duration=10m"),
            wrap=at_server,
        ),
    ):
        measured = programs.part(
            "overlap",
            f"--aggregator={endpoint}",
            f"--width={width}",
            f"--turns={turns}",
            f"--turn={turn_seconds * 1000:.0f}ms",
            f"--step={step_ms}ms",
            wrap=at_worker,
        )

    def rates(prefix: str, clock: str) -> list[float]:
        return [turn[f"{prefix}steps"] / turn[f"{prefix}{clock}_seconds"] for turn in measured]

    pairs = zip(rates("", "cpu"), rates("alone_", "cpu"), strict=True)
    walls = zip(rates("", "wall"), rates("alone_", "wall"), strict=True)
    return Series.of_rates(
        "steps/s",
        pairs,
        link=link,
        wall_ratio=median(a / b for a, b in walls),
        # What of it is the caller's own part of exchanges.
        step_call_share=median(turn["step_cpu_seconds"] / turn["cpu_seconds"] for turn in measured),
        exchanges_per_s=median(turn["exchanges"] / turn["wall_seconds"] for turn in measured),
        backed_off=sum(turn["backed_off"] for turn in measured),
    )
