"""What an aggregator must have done, reckoned from what workers sent: codes, ledgers, snapshots.

    final = read_snapshot(newest_snapshot(folder))
    totals = applied_pushes(ledgers, final)     # by shard and rank
    assert_sum_of_pushes(final, totals)         # to the bit, and each of them once

Written from kernels/code_format.h, comm/snapshot_format.h and comm/tools/tl_load_ledger.h, sharing
no code with them. Sums are exact, and so don't depend on their order, where workers send multiples
of a power of two (tl-load --exact).
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

CHUNK_ENTRIES, GROUP_ENTRIES = 1 << 12, 1 << 16
RUNS, PACKED, RAW, BITMAP, ALL = 13, 26, 27, 28, 29
FLOAT32 = 0


class Bits:
    """Reads bits, lowest first."""

    def __init__(self, data: bytes):
        self._data, self._at = data + bytes(8), 0

    def peek(self) -> int:
        """At least the next 56 bits."""
        byte = self._at >> 3
        return int.from_bytes(self._data[byte : byte + 8], "little") >> (self._at & 7)

    def read(self, count: int) -> int:
        value = self.peek() & ((1 << count) - 1)
        self._at += count
        return value

    def zeros(self) -> int:
        """How many zeros come before the next one, which is read, too."""
        count = 0
        while not (ahead := self.peek() & ((1 << 56) - 1)):
            count, self._at = count + 56, self._at + 56
            assert self._at < 8 * len(self._data), "a gap without an end"
        more = (ahead & -ahead).bit_length() - 1
        self._at += more + 1
        return count + more

    def rice(self, b: int) -> int:
        high = self.zeros()
        return high << b | self.read(b)

    def gamma(self) -> int:
        width = self.zeros()
        return 1 << width | self.read(width)


def _positions(bits: Bits, entries: int, count: int) -> list[int]:
    """Which entries of a group are kept."""
    out: list[int] = []
    chunk, chunks = 0, -(-entries // CHUNK_ENTRIES)
    while len(out) < count:
        kind, begin = bits.read(5), chunk * CHUNK_ENTRIES
        span = min(CHUNK_ENTRIES, entries - begin)
        assert kind <= ALL and span > 0, "no index"
        if kind < PACKED:
            chunk += bits.read(4) + 1
            left = count - len(out) if chunk == chunks else bits.read(16)
            at = begin
            while left > 0:
                at += bits.rice(kind % RUNS)
                length = bits.gamma() if kind >= RUNS else 1
                out.extend(range(at, at + length))
                at, left = at + length, left - length
            continue
        chunk += 1
        if kind == ALL:
            out.extend(range(begin, begin + span))
        elif kind == BITMAP:
            out.extend(begin + at for at in range(span) if bits.read(1))
        else:
            width = 12 if kind == RAW else bits.read(4)
            at = begin
            for _ in range(bits.read(12) + 1):
                at = begin + bits.read(width) if kind == RAW else at + bits.read(width)
                out.append(at)
                at += 1
    assert len(out) == count
    return out


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def kept_entries(code: bytes, entries: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and values of what a code of float32 values keeps."""
    magic, value_code, count, kept = struct.unpack_from("<4sBxxxII", code)
    assert (magic, value_code, count) == (b"TLC1", FLOAT32, entries), code[:16]
    positions, values, at = [np.zeros(0, int)], [np.zeros(0, "<f4")], 16
    for begin in range(0, entries, GROUP_ENTRIES):
        length, at = _varint(code, at)
        if length == 0:
            continue
        end = at + length
        last, at = _varint(code, at)
        values.append(np.frombuffer(code, "<f4", last + 1, at))
        index = Bits(code[at + 4 * (last + 1) : end])
        span = min(GROUP_ENTRIES, entries - begin)
        positions.append(begin + np.array(_positions(index, span, last + 1)))
        kept, at = kept - (last + 1), end
    assert (kept, at) == (0, len(code)), "the code has more or less than it says"
    return np.concatenate(positions), np.concatenate(values)


def decode(code: bytes, entries: int) -> np.ndarray:
    """The vector that a code of float32 values stands for."""
    vector = np.zeros(entries, "<f4")
    positions, values = kept_entries(code, entries)
    vector[positions] = values
    return vector


class ShardState(NamedTuple):
    version: int
    applied: dict[int, int]  # Of each rank, the last push that is in the centre.
    centre: np.ndarray


class Snapshot(NamedTuple):
    number: int
    job: str
    shards: list[ShardState]


def read_snapshot(path: Path) -> Snapshot:
    """A whole one; checksums are the C++ reader's business."""
    data = path.read_bytes()
    magic, form, _, job_bytes = struct.unpack_from("<4sHBB", data)
    number, first, end, layout_bytes = struct.unpack_from("<QIII", data, 8)
    assert (magic, form) == (b"TLS1", 1)
    job = data[28 : 28 + job_bytes].decode()
    at = 28 + job_bytes + layout_bytes + 4
    shards = []
    for index in range(first, end):
        shard, workers, version, entries = struct.unpack_from("<IIQI", data, at)
        assert shard == index
        at += 64
        applied = dict(
            struct.unpack_from("<I4xQ", data, at + 16 * worker) for worker in range(workers)
        )
        at += 16 * workers + 4
        shards.append(ShardState(version, applied, np.frombuffer(data, "<f4", entries, at)))
        at += 4 * entries + 4
    assert data[at : at + 4] == b"TLSE"
    assert len(data) == at + 16
    return Snapshot(number, job, shards)


def newest_snapshot(folder: Path) -> Path | None:
    return max(folder.glob("snapshot-*.tls"), default=None)


class Push(NamedTuple):
    rank: int
    shard: int
    sequence: int
    code: bytes


def read_ledger(path: Path) -> Iterator[Push]:
    """Every push that a process was about to send, in their order."""
    data, at = path.read_bytes(), 0
    while at + 20 <= len(data):
        rank, shard, sequence, length = struct.unpack_from("<IIQI", data, at)
        at += 20
        if at + length > len(data):
            return  # The process was killed while it wrote this, and never sent it.
        yield Push(rank, shard, sequence, data[at : at + length])
        at += length


def applied_pushes(ledgers: list[Path], final: Snapshot) -> list[dict[int, np.ndarray]]:
    """Of every shard, and of every rank in it, the sum of those pushes that are in the centre.

    A number may be in the ledger several times: when a push was lost with the aggregator, or with
    its worker, the next one has its number. So the last with a number is the one that was applied.
    Ledgers of later processes come after those of earlier ones.
    """
    last = {(p.shard, p.rank, p.sequence): p.code for path in ledgers for p in read_ledger(path)}
    totals = []
    for index, shard in enumerate(final.shards):
        totals.append({})
        for rank, applied in shard.applied.items():
            total = totals[-1][rank] = np.zeros(shard.centre.size)
            for sequence in range(1, applied + 1):
                positions, values = kept_entries(last[index, rank, sequence], total.size)
                total[positions] += values
    return totals


def assert_sum_of_pushes(final: Snapshot, totals: list[dict[int, np.ndarray]]) -> None:
    """That a centre that was zero at first has every push in it once, and nothing else."""
    for index, (shard, of_ranks) in enumerate(zip(final.shards, totals, strict=True)):
        assert shard.version == sum(shard.applied.values()), f"shard {index}"
        wrong = np.flatnonzero(sum(of_ranks.values()) != shard.centre)
        assert not wrong.size, f"{wrong.size} entries of shard {index}, the first at {wrong[0]}"
