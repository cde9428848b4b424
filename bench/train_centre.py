"""The centre of a job that is under way, from the snapshots of its aggregator.

Looking at it so costs the job nothing: no byte on its network, and no worker more.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from report import BenchmarkError

# As in comm/shards.h: tensors of up to so many entries come last, and travel dense.
SMALL_TENSOR_ENTRIES = 1024
SNAPSHOT_EVERY_MS = 100
WAIT_SECONDS = 60
_CRC_BYTES = 4


def flags(folder: Path) -> list[str]:
    """Of tl-aggregator."""
    return [f"--snapshot-dir={folder}", f"--snapshot-every={SNAPSHOT_EVERY_MS}ms"]


def read(folder: Path, sizes: Sequence[int]) -> np.ndarray:
    """The centre as it is now, in the order of tensors of these sizes."""
    return to_tensors(_newest_from_now(folder), sizes)


def _newest_from_now(folder: Path) -> np.ndarray:
    """The second snapshot from now was begun after this call."""
    deadline = time.monotonic() + WAIT_SECONDS
    first = _newest(folder)
    while time.monotonic() < deadline:
        newest = _newest(folder)
        if newest >= (first or 0) + 2:
            try:
                return parse((folder / f"snapshot-{newest:020}.tls").read_bytes())
            except FileNotFoundError:  # A newer one is there.
                first = newest - 2
        time.sleep(SNAPSHOT_EVERY_MS / 4e3)
    raise BenchmarkError(f"no new snapshot has come to {folder} within {WAIT_SECONDS} s")


def _newest(folder: Path) -> int:
    names = (path.stem for path in folder.glob("snapshot-*.tls"))
    return max((int(name.removeprefix("snapshot-")) for name in names), default=0)


def parse(content: bytes) -> np.ndarray:
    """The wire vector of a whole snapshot; its form is in comm/snapshot_format.h."""

    def number(at: int, count: int = 4) -> int:
        return int.from_bytes(content[at : at + count], "little")

    if content[:4] != b"TLS1":
        raise BenchmarkError("a snapshot does not begin as one")
    shards = number(20) - number(16)
    at = 28 + content[7] + number(24) + _CRC_BYTES
    centre = []
    for _ in range(shards):
        workers, entries = number(at + 4), number(at + 16)
        at += 64 + 16 * workers + _CRC_BYTES
        centre.append(np.frombuffer(content, "<f4", entries, at))
        at += 4 * entries + _CRC_BYTES
    return np.concatenate(centre)


def to_tensors(wire: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """From the wire's order, in which small tensors are last, to the tensors' own."""
    order = sorted(range(len(sizes)), key=lambda tensor: sizes[tensor] <= SMALL_TENSOR_ENTRIES)
    pieces = np.split(wire, np.cumsum([sizes[tensor] for tensor in order])[:-1])
    by_tensor = dict(zip(order, pieces, strict=True))
    return np.concatenate([by_tensor[tensor] for tensor in range(len(sizes))])
