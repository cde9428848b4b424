"""Workers and aggregators that are killed without warning, and what must hold all the same.

Workers push multiples of 1/256, as they are: sums are exact. At the end of every run
  * both ends mean the same bits of every worker's view (tl-load --check);
  * the centre is the sum of the pushes that it says it has, each of them once, to the bit;
  * of workers that were not killed themselves, all of their steps are in it: their pushes add up to
    the same bits as in a run in which nothing happened. What was acknowledged is not lost.
"""

import os
import random
import socket
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from cluster.wait import until
from integration.ledger import (
    applied_pushes,
    assert_sum_of_pushes,
    newest_snapshot,
    read_snapshot,
)
from integration.processes import Aggregator, Load
from integration.wire import Model, Worker, code, frame

SURVIVORS, VICTIMS = 2, 2
# A large shard, which takes its time to be applied, and two small ones.
EXACT = ["--layout=kernel:512x512,small:64x64,bias:64", "--policy=gradient-async", "--exact"]
EXACT += ["--bits=32", "--density=1", "--reply-density=1", "--period=1", "--check"]
STEP_SECONDS = 0.01
# For how long faults go on in each test. A minute is what to try before a release.
FAULT_SECONDS = float(os.environ.get("TL_FAULT_SECONDS", "6"))
# Longer than faults go on: what survives must be there until the last one is over.
STEPS = int(1.5 * FAULT_SECONDS / STEP_SECONDS)


class Job:
    """An aggregator that is killed and started anew, the same each time, and its workers."""

    def __init__(self, folder: Path):
        self._folder, self._snapshots = folder, folder / "snapshots"
        self._ledgers: list[Path] = []  # One for each process.
        self._flags = [f"--snapshot-dir={self._snapshots}", "--snapshot-every=200ms"]
        self.aggregator = Aggregator(*self._flags)
        self.address = self.aggregator.address

    def restart_aggregator(self) -> None:
        self.aggregator.kill()
        self.aggregator = Aggregator(*self._flags, listen="{}:{}".format(*self.address))

    def has_snapshot(self) -> bool:
        return newest_snapshot(self._snapshots) is not None

    def survivors(self, steps: int) -> Load:
        return self._load(0, SURVIVORS, f"--steps={steps}", "--drain")

    def victims(self) -> Load:
        return self._load(SURVIVORS, VICTIMS, "--duration=1h")

    def _load(self, first: int, workers: int, *flags: str) -> Load:
        attempt = len(self._ledgers) + 1
        self._ledgers.append(self._folder / f"ledger-{attempt}")
        who = [f"--rank-base={first}", f"--workers={workers}", f"--attempt={attempt}"]
        step = f"--step={STEP_SECONDS * 1000:.0f}ms"
        return Load(self.address, *EXACT, *who, step, f"--ledger={self._ledgers[-1]}", *flags)

    def totals(self) -> list[dict[int, np.ndarray]]:
        """Ends the aggregator, and gives the sums of pushes in its centre, found to be right."""
        assert self.aggregator.stop() == 0
        final = read_snapshot(newest_snapshot(self._snapshots))
        totals = applied_pushes([path for path in self._ledgers if path.exists()], final)
        assert_sum_of_pushes(final, totals)
        return totals

    def close(self) -> None:
        self.aggregator.close()


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    job.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> list[dict[int, np.ndarray]]:
    """What the survivors bring to a centre when nothing happens."""
    job = Job(tmp_path_factory.mktemp("undisturbed"))
    try:
        report = job.survivors(STEPS).finish()
        assert report["reconnects"] == 0
        return job.totals()
    finally:
        job.close()


def assert_all_is_there(job: Job, undisturbed: list[dict[int, np.ndarray]]) -> None:
    for of_ranks, expected in zip(job.totals(), undisturbed, strict=True):
        for rank, total in expected.items():
            assert np.array_equal(of_ranks[rank], total), f"steps of rank {rank} were lost"


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("part", [0.01, 0.5, 0.99])
def test_half_a_push_is_no_push(job, part, reset):
    model = Model({"kernel": [64, 64]})
    with Worker(job.address, model, rank=0).join() as worker:
        worker.load(0)
        assert worker.push(0, code(4096, {1: 1.0})).kind == "reply"
        before = worker.digest(0)
        half = frame("push", code(4096, dict.fromkeys(range(999), 1.0)), 0, 2, model.agreed)
        worker.send(half[: int(part * len(half))])
        if reset:  # As by a machine that is gone: no orderly end.
            linger = struct.pack("ii", 1, 0)
            worker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    with Worker(job.address, model, rank=0, attempt=2).join() as heir:
        assert not heir.resumed
        heir.load(0)
        assert heir.applied == [1]
        assert heir.digest(0)[1:] == before[1:]
        assert heir.push(0, code(4096, {2: 1.0})).kind == "reply"
        assert heir.agrees(0)


def test_killed_workers_go_on_where_the_centre_has_them(job, undisturbed):
    dice = random.Random(1)
    survivors, victims = job.survivors(STEPS), job.victims()
    end = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < end:
        time.sleep(dice.uniform(0, 1))
        victims.kill()
        victims = job.victims()
    report = survivors.finish()
    assert report["reconnects"] == 0, "others were disturbed"
    victims.stop()
    assert_all_is_there(job, undisturbed)


def test_killed_aggregator_goes_on_and_workers_owe_again_what_it_lost(job, undisturbed):
    dice = random.Random(2)
    survivors = job.survivors(STEPS)
    assert until(job.has_snapshot)
    end = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < end:
        time.sleep(dice.uniform(0, 1.5))
        job.restart_aggregator()
    assert survivors.running(), "it should have been there until the last fault"
    report = survivors.finish()
    assert report["owed_again"] > 0, "nothing was lost: the kills came too early or too late"
    assert_all_is_there(job, undisturbed)


def test_workers_and_aggregator_are_killed_in_turn(job, undisturbed):
    dice = random.Random(3)
    survivors, victims = job.survivors(STEPS), job.victims()
    assert until(job.has_snapshot)
    end = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < end:
        time.sleep(dice.uniform(0, 1))
        if dice.random() < 0.5:
            job.restart_aggregator()
        else:
            victims.kill()
            victims = job.victims()
    assert survivors.running(), "it should have been there until the last fault"
    report = survivors.finish()
    assert report["owed_again"] > 0, "nothing was lost: the kills came too early or too late"
    victims.stop()
    assert_all_is_there(job, undisturbed)
