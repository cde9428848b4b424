"""An aggregator with an honest worker in it, whom strangers must not disturb.

pytest_plugins = ["integration.house"]

def test_stranger_is_refused(house):
    with Connection(house.address) as stranger: ...
"""

import functools
import struct
import threading
import time
from pathlib import Path

import pytest
from cluster.wait import until
from integration.processes import Aggregator
from integration.wire import Model, Worker, code, forged, frame

SECRET = b"a secret of the job's workers"
TENSORS = {"embedding": [2048, 1024], "kernel": [64, 64], "bias": [64]}
MODEL = Model(TENSORS)
*LARGE, KERNEL, BIAS = range(len(MODEL.shards))
TIMEOUTS = ["--handshake-timeout=3s", "--progress-timeout=3s", "--lease=8s"]
MAX_GROWTH_BYTES = 64 << 20


@functools.cache
def init_of_large_shard() -> bytes:
    """Python is slow to sum up a million bytes: once is enough, and not while a lease runs."""
    return frame("init", bytes(4 * MODEL.shards[0]), 0, 0, MODEL.agreed)


class Memory:
    """How much more a process takes, at most, than it has now."""

    def __init__(self, pid: int):
        self._folder = Path(f"/proc/{pid}")
        (self._folder / "clear_refs").write_text("5")  # The peak begins anew.
        self._before = self._bytes("VmRSS")

    def growth(self) -> int:
        return self._bytes("VmHWM") - self._before

    def _bytes(self, name: str) -> int:
        status = (self._folder / "status").read_text()
        return 1024 * int(status.split(f"{name}:")[1].split()[0])


class Companion(threading.Thread):
    """An honest worker that exchanges until it is told to stop, and remembers what went wrong."""

    def __init__(self, worker: Worker):
        super().__init__(daemon=True)
        self._worker, self._stopping = worker, threading.Event()
        self.exchanges = 0
        self.trouble: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self._stopping.wait(0.01):
                answer = self._worker.push(BIAS, code(64, {self.exchanges % 64: 0.125}))
                assert answer.kind == "reply", answer
                self.exchanges += 1
            assert self._worker.agrees(BIAS)
        except BaseException as trouble:
            self.trouble = trouble

    def has_gone_on(self, since: int) -> bool:
        until(lambda: self.exchanges >= since + 3 or not self.is_alive())
        return self.exchanges >= since + 3

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        if self.trouble:
            raise self.trouble


class House:
    """An aggregator that wants the secret, with an honest worker of rank 0 in it."""

    def __init__(self, *flags: str, folder: Path, wrap=None):
        secret = folder / "secret"
        secret.touch(0o600)
        secret.write_bytes(SECRET)
        self.aggregator = Aggregator(f"--secret-file={secret}", *TIMEOUTS, *flags)
        self.address, self._wrap = self.aggregator.address, wrap
        zeros = init_of_large_shard()
        owner = self.worker(rank=0).join()
        for shard in LARGE:
            owner.send(forged(zeros, 8, struct.pack("<I", shard)))
        owner.load(KERNEL)
        owner.load(BIAS)
        self.owner = Companion(owner)

    def worker(self, model: Model = MODEL, **kwargs) -> Worker:
        return Worker(self.address, model, **{"secret": SECRET, "wrap": self._wrap} | kwargs)

    def guest(self, **kwargs) -> Worker:
        """A worker that has joined and has a view of the kernel."""
        guest = self.worker(**{"rank": 1, "attempt": time.monotonic_ns()} | kwargs).join()
        guest.load(KERNEL)
        return guest

    def close(self) -> None:
        try:
            self.owner.stop()
        finally:
            self.aggregator.close()


@pytest.fixture(scope="module")
def shared_house(tmp_path_factory):
    house = House(folder=tmp_path_factory.mktemp("house"))
    yield house
    house.close()


@pytest.fixture
def house(shared_house):
    """The house, in which all must be well after the test."""
    before, memory = shared_house.owner.exchanges, Memory(shared_house.aggregator.pid)
    yield shared_house
    assert shared_house.owner.has_gone_on(before), "a stranger kept the honest worker from its work"
    assert not shared_house.owner.trouble
    assert memory.growth() < MAX_GROWTH_BYTES
