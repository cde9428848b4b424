"""Disks that are full and snapshots that are damaged: the aggregator says so, and goes on.

What it goes on from is compared with what a reader of the format in Python finds in the file.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cluster.wait import until
from integration.ledger import newest_snapshot, read_snapshot
from integration.processes import Aggregator
from integration.wire import Model, Worker, code

MODEL = Model({"kernel": [64, 64], "bias": [64]})
KERNEL, BIAS = 0, 1
OFTEN = "--snapshot-every=100ms"
DISK_BYTES = 256 << 10
MOUNTS = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && exec sleep infinity'


def worker_of(aggregator: Aggregator, attempt: int = 1) -> Worker:
    """Rank 0, with views of all shards."""
    worker = Worker(aggregator.address, MODEL, rank=0, attempt=attempt).join()
    worker.load(KERNEL)
    worker.load(BIAS)
    return worker


def push(worker: Worker, count: int) -> None:
    for _ in range(count):
        number = worker.applied[KERNEL] + 1
        assert worker.push(KERNEL, code(4096, {number % 4096: 0.1})).kind == "reply"
        assert worker.push(BIAS, code(64, {number % 64: 0.1})).kind == "reply"


def holds(path: Path | None, worker: Worker) -> bool:
    """Whether the snapshot has all pushes of the worker in it."""
    try:
        shards = read_snapshot(path).shards if path else []
    except FileNotFoundError:
        return False  # There are two newer ones already.
    return [shard.applied.get(0) for shard in shards] == worker.applied


def assert_goes_on_from(path: Path, aggregator: Aggregator) -> None:
    """That an aggregator that was started anew has what the file has, and goes on."""
    assert f"path={path}" in aggregator.log()
    with worker_of(aggregator, attempt=99) as worker:
        for shard, snapshot in enumerate(read_snapshot(path).shards):
            assert np.array_equal(worker.views[shard].view("u4"), snapshot.centre.view("u4"))
            assert worker.applied[shard] == snapshot.applied[0]
            assert worker.digest(shard)[2] == snapshot.version
        push(worker, 3)
        assert worker.agrees(KERNEL)


# ---- A full disk. -------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A folder on a disk of its own. It is there as long as a process that sees it mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    apart = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    mount = ["sh", "-c", MOUNTS, "sh", str(DISK_BYTES), str(folder)]
    keeper = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "--", *apart, *mount],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if keeper.stdout.readline() != "mounted\n":
            pytest.skip(f"no disk can be mounted here: {keeper.communicate()[1].strip()}")
        # As that process sees it.
        yield Path(f"/proc/{keeper.pid}/root{folder}")
    finally:
        keeper.kill()
        keeper.communicate()


def fill(path: Path) -> None:
    """Takes all that is left of a disk."""
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 10)):
            pass


def test_full_disk_is_reported_and_the_snapshot_before_is_gone_on_from(small_disk):
    folder, filler = small_disk / "snapshots", small_disk / "filler"
    flags = [f"--snapshot-dir={folder}", OFTEN]
    with Aggregator(*flags) as aggregator, worker_of(aggregator) as worker:
        push(worker, 5)
        assert until(lambda: holds(newest_snapshot(folder), worker))
        full = "no space left on device"
        # Again and again: one that was being written may have been removed since.
        assert until(lambda: fill(filler) or full in aggregator.log())
        said = next(line for line in aggregator.log().splitlines() if full in line)
        assert "snapshot failed" in said
        assert str(folder) in said

        # It serves as before, and has lost nothing that it had written.
        whole = sorted(folder.glob("*.tls"))
        push(worker, 5)
        assert worker.agrees(KERNEL)
        failed = worker.status()["failed_snapshots"]
        assert until(lambda: worker.status()["failed_snapshots"] > failed)
        assert sorted(folder.glob("*.tls")) == whole
        aggregator.kill()
    with Aggregator(*flags) as aggregator:
        assert_goes_on_from(whole[-1], aggregator)
        filler.unlink()
        assert until(lambda: newest_snapshot(folder) > whole[-1]), "there is room again"


# ---- Damaged files. -----------------------------------------------------------------------------


@pytest.fixture
def two_snapshots(tmp_path) -> list[Path]:
    """What an aggregator leaves behind that was killed: the snapshot before the last, the last."""
    folder = tmp_path / "snapshots"
    with Aggregator(f"--snapshot-dir={folder}", OFTEN) as aggregator:
        with worker_of(aggregator) as worker:
            push(worker, 3)
            assert until(lambda: holds(newest_snapshot(folder), worker))
            push(worker, 4)
            assert until(lambda: holds(newest_snapshot(folder), worker))
        aggregator.kill()
    snapshots = sorted(folder.glob("*.tls"))
    assert len(snapshots) == 2
    return snapshots


def restart(snapshots: list[Path]) -> Aggregator:
    return Aggregator(f"--snapshot-dir={snapshots[0].parent}", "--snapshot-every=1h")


def test_newest_snapshot_is_gone_on_from(two_snapshots):
    with restart(two_snapshots) as aggregator:
        assert "damaged" not in aggregator.log()
        assert_goes_on_from(two_snapshots[-1], aggregator)


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.999])
def test_cut_off_snapshot_is_named_and_the_one_before_is_gone_on_from(two_snapshots, share):
    before, last = two_snapshots
    os.truncate(last, int(share * last.stat().st_size))
    with restart(two_snapshots) as aggregator:
        said = next(line for line in aggregator.log().splitlines() if "damaged snapshot" in line)
        assert str(last) in said
        assert "cut off" in said
        assert_goes_on_from(before, aggregator)


# Where comm/snapshot_format.h says that they are.
FIRST_SHARD = 28 + len("default") + len(MODEL.layout) + 4
PLACES = {
    "the magic": 1,
    "the number": 8,
    "the job": 30,
    "the layout": 40,
    "a sum": FIRST_SHARD - 1,
    "the version of a shard": FIRST_SHARD + 8,
    "the number of a push": FIRST_SHARD + 64 + 8,
    "the first centre": FIRST_SHARD + 1000,
    "the last centre": -100,
    "the end": -10,
}


@pytest.mark.parametrize("place", PLACES)
def test_flipped_bit_is_noticed_and_the_snapshot_before_is_gone_on_from(two_snapshots, place):
    before, last = two_snapshots
    damaged = bytearray(last.read_bytes())
    damaged[PLACES[place]] ^= 0x10
    last.write_bytes(damaged)
    with restart(two_snapshots) as aggregator:
        said = next(line for line in aggregator.log().splitlines() if "damaged snapshot" in line)
        assert str(last) in said
        assert "checksum is wrong" in said or "it is no snapshot" in said
        assert_goes_on_from(before, aggregator)


def test_without_a_whole_snapshot_it_says_so_and_starts_anew(two_snapshots):
    for snapshot in two_snapshots:
        snapshot.write_bytes(b"nothing of use")
    with restart(two_snapshots) as aggregator:
        for snapshot in two_snapshots:
            assert str(snapshot) in aggregator.log()
        assert "starting anew" in aggregator.log()
        with worker_of(aggregator) as worker:
            assert worker.applied == [0, 0]
            push(worker, 1)
        # It must not overwrite what somebody may still want to look at.
        assert [path.read_bytes() for path in two_snapshots] == [b"nothing of use"] * 2


def test_unfinished_snapshot_of_a_killed_aggregator_is_ignored_and_removed(two_snapshots):
    unfinished = two_snapshots[-1].with_name("snapshot-00000000000000009999.tmp")
    unfinished.write_bytes(two_snapshots[-1].read_bytes()[:-7])
    with restart(two_snapshots) as aggregator:
        assert_goes_on_from(two_snapshots[-1], aggregator)
        assert aggregator.stop() == 0
    assert not unfinished.exists()
    final = read_snapshot(newest_snapshot(unfinished.parent))
    assert final.shards[KERNEL].applied == {0: 10}
