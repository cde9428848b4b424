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
from collections.abc import Iterator

import pytest
from cluster.wait import until
from integration.job import Job, Totals, assert_same_steps
from integration.processes import Load
from integration.wire import Model, Worker, code, frame

# A large shard, which takes its time to be applied, and two small ones.
LAYOUT = "kernel:512x512,small:64x64,bias:64"
SURVIVORS, VICTIMS = 2, 2
STEP_SECONDS = 0.01
# For how long faults go on in each test. A minute is what to try before a release.
FAULT_SECONDS = float(os.environ.get("TL_FAULT_SECONDS", "6"))
# Longer than faults go on: what survives must be there until the last one is over.
STEPS = int(1.5 * FAULT_SECONDS / STEP_SECONDS)
STEP = f"--step={1000 * STEP_SECONDS:.0f}ms"
# Many times what it takes.
PATIENCE_SECONDS = 120 + 10 * FAULT_SECONDS


def start_survivors(job: Job) -> Load:
    return job.load(0, SURVIVORS, STEP, f"--steps={STEPS}", "--drain")


def start_victims(job: Job) -> Load:
    return job.load(SURVIVORS, VICTIMS, STEP, "--duration=1h")


@pytest.fixture
def job(tmp_path) -> Iterator[Job]:
    job = Job(tmp_path, LAYOUT)
    yield job
    job.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Totals:
    """What the survivors bring to a centre when nothing happens."""
    job = Job(tmp_path_factory.mktemp("undisturbed"), LAYOUT)
    try:
        assert start_survivors(job).finish(PATIENCE_SECONDS)["reconnects"] == 0
        return job.totals()
    finally:
        job.close()


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
    survivors, victims = start_survivors(job), start_victims(job)
    end = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < end:
        time.sleep(dice.uniform(0, 1))
        victims.kill()
        victims = start_victims(job)
    report = survivors.finish(PATIENCE_SECONDS)
    assert report["reconnects"] == 0, "others were disturbed"
    victims.stop()
    assert_same_steps(job.totals(), undisturbed)


def test_killed_aggregator_goes_on_and_workers_owe_again_what_it_lost(job, undisturbed):
    dice = random.Random(2)
    survivors = start_survivors(job)
    assert until(job.has_snapshot)
    end = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < end:
        time.sleep(dice.uniform(0, 1.5))
        job.restart_aggregator()
    assert survivors.running(), "it should have been there until the last fault"
    report = survivors.finish(PATIENCE_SECONDS)
    assert report["owed_again"] > 0, "nothing was lost: the kills came too early or too late"
    assert_same_steps(job.totals(), undisturbed)


def test_aggregator_that_has_only_the_first_weights_gets_all_pushes_again(tmp_path, undisturbed):
    job = Job(tmp_path, LAYOUT, snapshot_every="1h")
    survivors = start_survivors(job)
    assert until(job.has_snapshot)
    time.sleep(FAULT_SECONDS / 2)
    job.restart_aggregator()
    assert survivors.finish(PATIENCE_SECONDS)["owed_again"] > 100
    assert_same_steps(job.totals(), undisturbed)


def test_workers_and_aggregator_are_killed_in_turn(job, undisturbed):
    dice = random.Random(3)
    survivors, victims = start_survivors(job), start_victims(job)
    assert until(job.has_snapshot)
    end = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < end:
        time.sleep(dice.uniform(0, 1))
        if dice.random() < 0.5:
            job.restart_aggregator()
        else:
            victims.kill()
            victims = start_victims(job)
    assert survivors.running(), "it should have been there until the last fault"
    report = survivors.finish(PATIENCE_SECONDS)
    assert report["owed_again"] > 0, "nothing was lost: the kills came too early or too late"
    victims.stop()
    assert_same_steps(job.totals(), undisturbed)
