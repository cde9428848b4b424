"""Networks that are slow, lossy, cut in two, or break every connection: a run ends, and right."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import tap_switch
from cluster.network import Host, Network
from cluster.wait import until
from integration.job import Job, Totals, assert_same_steps
from integration.processes import RUN_SECONDS, command_of, environment_with
from integration.proxy import FATES, Proxy

PORT = 7070
# For how long a worker is cut off. A minute is what to try before a release.
PARTITION_SECONDS = float(os.environ.get("TL_FAULT_SECONDS", "6"))


@pytest.fixture
def needs_namespaces() -> None:
    if reason := Network.why_not():
        pytest.skip(reason)


@pytest.fixture
def switch(needs_namespaces) -> Path:
    return tap_switch.build()


class Remote:
    """A program on a host of a network. It is killed with the network."""

    def __init__(self, host: Host, folder: Path, name: str, *arguments: str):
        self._out, self._err = folder / f"{host.number}.out", folder / f"{host.number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = host.popen(
                command_of(name, *arguments), stdout=out, stderr=err, env=environment_with()
            )

    def log(self) -> str:
        return self._err.read_text()

    def output(self) -> str:
        return self._out.read_text()

    def terminate(self) -> None:
        self._process.terminate()

    def finish(self) -> dict:
        assert self._process.wait(RUN_SECONDS) == 0, self.log()
        return json.loads(self.output())


class Site:
    """An aggregator on the first host of a network, and a worker on each of the others."""

    def __init__(self, network: Network, folder: Path, *flags: str):
        self._hosts, self._folder = network.hosts, folder
        self._where = f"{network.hosts[0].address}:{PORT}"
        listen = [f"--listen={self._where}", "--open-to-anybody"]
        self.aggregator = Remote(self._hosts[0], folder, "tl-aggregator", *listen, *flags)
        assert until(lambda: "listening" in self.aggregator.output()), self.aggregator.log()

    def start_workers(self, *flags: str) -> list[Remote]:
        return [
            Remote(
                host,
                self._folder,
                "tl-load",
                f"--aggregator={self._where}",
                f"--rank-base={rank}",
                *("--workers=1", "--check", "--json=-", *flags),
            )
            for rank, host in enumerate(self._hosts[1:])
        ]


def test_run_over_slow_long_and_lossy_links_ends_and_both_ends_agree(tmp_path, switch):
    with Network(4, rate="10mbit", delay_ms=50, loss=0.01, seed=1, switch=switch) as network:
        site = Site(network, tmp_path)
        workers = site.start_workers("--layout=100k", "--steps=200", "--step=20ms", "--period=5")
        for worker in workers:
            report = worker.finish()
            assert report["views_agree"]
            assert report["exchanges"] > 5
            assert report["latency_p50_us"] > 100_000, "the delay is in every round trip"
        lost = sum(port["lost"] for port in network.middle.counters())
    assert lost > 0


@pytest.mark.usefixtures("needs_namespaces")
def test_worker_that_is_cut_off_trains_on_and_comes_back(tmp_path):
    with Network(3) as network:
        site = Site(network, tmp_path, "--lease=2s")
        workers = site.start_workers("--layout=100k", "--duration=1h", "--step=5ms")
        assert until(lambda: all("have joined" in worker.log() for worker in workers))

        def said(words: str) -> int:
            return sum(words in line for line in site.aggregator.log().splitlines())

        network.hosts[2].partition()
        assert until(lambda: said('"lease ran out" rank=1') and said("live=1"))
        time.sleep(PARTITION_SECONDS)
        joined = said("joined rank=1")
        network.hosts[2].heal()
        assert until(lambda: said("joined rank=1") > joined, 60 + PARTITION_SECONDS)
        for worker in workers:
            worker.terminate()
        there, away = [worker.finish() for worker in workers]
    assert there["reconnects"] == 0
    assert away["reconnects"] > 0
    assert away["resyncs"] > 0
    assert away["backed_off"] > 0
    # Cut off for most of the time, it has trained nearly as much as who was not.
    assert away["steps"] > 0.7 * there["steps"]
    assert away["exchanges"] < 0.7 * there["exchanges"]


# ---- Connections that break. --------------------------------------------------------------------

LAYOUT = "kernel:128x128,small:64x64,bias:64"
STEPS = 200


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Totals:
    """What the workers bring to a centre when nothing happens."""
    job = Job(tmp_path_factory.mktemp("undisturbed"), LAYOUT)
    try:
        job.load(0, 2, f"--steps={STEPS}", "--step=0", "--drain").finish()
        return job.totals()
    finally:
        job.close()


@pytest.fixture
def impatient(tmp_path) -> Iterator[Job]:
    """A job whose aggregator drops connections and workers that are silent for a moment."""
    job = Job(tmp_path, LAYOUT, "--progress-timeout=400ms", "--lease=700ms")
    yield job
    job.close()


def test_connections_break_in_all_ways_and_every_step_is_there_once(impatient, undisturbed):
    with Proxy(impatient.address, seed=1, most_bytes=500_000, longest_pause=0.8) as proxy:
        flags = [f"--steps={STEPS}", "--step=10ms", "--drain"]
        workers = impatient.load(0, 2, *flags, via=proxy.address)
        report = workers.finish()
        assert set(proxy.fates) == set(FATES), "it should have seen everything"
    assert report["reconnects"] > 0
    assert_same_steps(impatient.totals(), undisturbed)
