"""A worker in Python, from comm/PROTOCOL.md: an honest one, and the parts to make a stranger of.

    worker = Worker(address, MODEL, secret=SECRET, rank=0)
    worker.join()
    worker.load(0)                          # pull; rank 0 brings zeros if nobody has
    reply = worker.push(0, code(4096, {17: 0.5}))

    stranger = Connection(address)
    stranger.send(forged(frame("hello", ...), 12, b"\\xff" * 4))
    code, sentence = stranger.complaint()

It shares nothing with comm/ but the protocol: frames and checksums are those of the golden frames'
maker. Every wait has an end.
"""

import hashlib
import hmac
import importlib.util
import json
import math
import os
import socket
import struct
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from integration.ledger import decode


def _load_golden():
    path = Path(__file__).resolve().parent.parent / "comm/golden/make.py"
    spec = importlib.util.spec_from_file_location("golden_make", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


golden = _load_golden()
crc32c, frame = golden.crc32c, golden.frame

HEADER_BYTES, TRAILER_BYTES, STANDING_BYTES = 36, 4, 24
KINDS = {number: kind for kind, number in golden.TYPES.items()}
ERRORS = {
    1: "bad-frame",
    2: "version",
    3: "secret",
    4: "job",
    5: "layout",
    6: "rule",
    7: "fenced",
    8: "not-finite",
    9: "corrupt",
    10: "busy",
    11: "shutdown",
    12: "internal",
}
RULES = {"average": 0, "gradient-async": 1, "gradient-sync": 2}
PATIENCE_SECONDS = 30
RECEIVE_BYTES = 64 << 10
RAW, SMALL_TENSOR, SHARD_ENTRIES, CHUNK_ENTRIES, GROUP_ENTRIES = 27, 1024, 1 << 18, 1 << 12, 1 << 16


class Model:
    """A layout: names and shapes, all float32."""

    def __init__(self, tensors: dict[str, list[int]]):
        self.layout = struct.pack("<I", len(tensors))
        for name, shape in tensors.items():
            sizes = struct.pack(f"<{len(shape)}Q", *shape)
            self.layout += golden.string16(name) + bytes([0, len(shape)]) + sizes
        self.fingerprint = hashlib.sha256(self.layout).digest()
        self.agreed = struct.unpack("<Q", self.fingerprint[:8])[0]
        counts = [math.prod(shape) for shape in tensors.values()]
        # Entries of every shard.
        self.shards = [
            min(SHARD_ENTRIES, part - begin)
            for part in (
                sum(count for count in counts if count > SMALL_TENSOR),
                sum(count for count in counts if count <= SMALL_TENSOR),
            )
            for begin in range(0, part, SHARD_ENTRIES)
        ]


class Frame(NamedTuple):
    kind: str
    shard: int
    sequence: int
    payload: bytes


class Told(NamedTuple):
    """What an error or a refusal says."""

    code: str
    sentence: str


def forged(whole: bytes, offset: int, data: bytes) -> bytes:
    """A frame with other bytes in its header, and the checksum that belongs to them."""
    front = bytearray(whole[: HEADER_BYTES - 4])
    front[offset : offset + len(data)] = data
    return bytes(front) + struct.pack("<I", crc32c(front)) + whole[HEADER_BYTES:]


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def code(entries: int, kept: dict[int, float]) -> bytes:
    """The code (kernels/code_format.h) of a vector of which only a few of the first are not 0."""
    assert kept and max(kept) < CHUNK_ENTRIES
    values = b"".join(struct.pack("<f", kept[at]) for at in sorted(kept))
    bits, width = RAW | (len(kept) - 1) << 5, 17
    for at in sorted(kept):
        bits, width = bits | at << width, width + 12
    body = varint(len(kept) - 1) + values + bits.to_bytes((width + 7) // 8, "little")
    groups = (entries + GROUP_ENTRIES - 1) // GROUP_ENTRIES
    header = b"TLC1" + struct.pack("<BxxxII", 0, entries, len(kept))
    return header + varint(len(body)) + body + bytes(groups - 1)


def told(payload: bytes) -> Told:
    number, length = struct.unpack_from("<HH", payload)
    assert len(payload) == 4 + length
    return Told(ERRORS[number], payload[4:].decode())


class Connection:
    """A connection that speaks in frames, or in whatever it is given."""

    def __init__(self, address: tuple[str, int], wrap=None):
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel is not to hold much for who does not read.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self.socket.connect(address)
        if wrap:
            self.socket = wrap(self.socket)
        self._ahead = b""

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _take(self, count: int) -> bytes | None:
        """So many bytes; None when the connection ends before the first."""
        while len(self._ahead) < count:
            try:
                some = self.socket.recv(1 << 16)
            except (ConnectionResetError, BrokenPipeError):
                some = b""
            if not some:
                assert not self._ahead, f"the connection ended within a frame: {self._ahead!r}"
                return None
            self._ahead += some
        taken, self._ahead = self._ahead[:count], self._ahead[count:]
        return taken

    def read(self) -> Frame | None:
        """The next frame but for pongs, found to be whole; None at the end of the connection."""
        while (got := self._read()) and got.kind == "pong":
            pass  # They also come unasked, when somebody joins or leaves.
        return got

    def _read(self) -> Frame | None:
        header = self._take(HEADER_BYTES)
        if header is None:
            return None
        magic, version, kind, zero = struct.unpack_from("<4sBBH", header)
        shard, length, sequence, _, crc = struct.unpack_from("<IIQQI", header, 8)
        assert (magic, version, zero) == (golden.MAGIC, golden.VERSION, 0), header
        assert crc == crc32c(header[: HEADER_BYTES - 4])
        payload = self._take(length) if length else b""
        assert struct.unpack("<I", self._take(TRAILER_BYTES))[0] == crc32c(payload)
        return Frame(KINDS[kind], shard, sequence, payload)

    def expect(self, *kinds: str) -> Frame:
        got = self.read()
        assert got is not None, f"the connection ended where {kinds} should come"
        said = told(got.payload) if got.kind in ("error", "refused") else ""
        assert got.kind in kinds, f"{got.kind} {said} came where {kinds} should"
        return got

    def complaint(self) -> Told:
        """What the error says that comes now; and the connection has to end after it."""
        said = told(self.expect("error").payload)
        assert self.read() is None, "an error is the end"
        return said

    def ends_without_a_word(self) -> bool:
        """Whether it ends; no matter how, but within our patience, and with nothing said before."""
        return self.read() is None


class Worker(Connection):
    """A connection that knows the secret and the model, and does as the protocol says."""

    def __init__(
        self,
        address: tuple[str, int],
        model: Model,
        *,
        secret: bytes = b"",
        rank: int = -1,
        attempt: int = 1,
        job: str = "default",
        name: str = "python",
        rule: str = "average",
        wrap=None,
    ):
        super().__init__(address, wrap)
        self.model, self.secret, self.rule = model, secret, rule
        self.hello = os.urandom(32) + model.fingerprint + struct.pack("<Qi", attempt, rank)
        self.hello += golden.string8(job) + golden.string8(name)
        self.rank: int | None = None
        self.resumed = False
        self.incarnation = 0
        self.applied = [0] * len(model.shards)
        self.views: list[np.ndarray | None] = [None] * len(model.shards)

    def tell(self, kind: str, payload: bytes = b"", shard: int = 0, sequence: int = 0) -> None:
        self.send(frame(kind, payload, shard, sequence, self.model.agreed))

    def proof_for(self, challenge: bytes, label: bytes = b"TL1 worker") -> bytes:
        if not self.secret:
            return bytes(32)
        return hmac.digest(self.secret, label + self.hello + challenge, "sha256")

    def greet(self) -> None:
        self.send(frame("hello", self.hello))
        challenge = self.expect("challenge").payload
        assert challenge[32] == bool(self.secret)
        self.send(frame("proof", self.proof_for(challenge)))
        welcome = self.expect("welcome").payload
        assert welcome == self.proof_for(challenge, b"TL1 aggregator")

    def join_payload(self, incarnation: int = 0) -> bytes:
        chunk_top_k, float32, density = 0, 0, 1.0
        rule = RULES[self.rule]
        payload = struct.pack("<BBBdQ", rule, chunk_top_k, float32, density, incarnation)
        return payload + struct.pack("<I", len(self.model.layout)) + self.model.layout

    def join(self, incarnation: int = 0) -> "Worker":
        self.greet()
        self.send(frame("join", self.join_payload(incarnation)))
        fields = struct.unpack("<IIQIIIB", self.expect("joined").payload)
        self.rank, _, self.incarnation, _, first, end, resumed = fields
        assert (first, end) == (0, len(self.model.shards))
        self.resumed = bool(resumed)
        return self

    def pull(self, shard: int) -> np.ndarray | None:
        """The centre, which the view then is; None if nobody has brought it yet."""
        self.tell("pull", shard=shard)
        state = self.expect("state", "no-centre")
        if state.kind == "no-centre":
            return None
        self.applied[shard] = state.sequence
        self.views[shard] = np.frombuffer(state.payload[STANDING_BYTES:], "<f4").copy()
        return self.views[shard].copy()

    def load(self, shard: int) -> np.ndarray:
        """The centre; rank 0 brings zeros if nobody has before, others wait for it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (centre := self.pull(shard)) is None:
            assert time.monotonic() < deadline, "nobody brings the first weights"
            if self.rank == 0:
                self.tell("init", bytes(4 * self.model.shards[shard]), shard)
            else:
                time.sleep(0.05)
        return centre

    def push(self, shard: int, push: bytes) -> Frame:
        """Sends the next push and gives its answer; a reply is added to the view."""
        self.tell("push", push, shard, self.applied[shard] + 1)
        answer = self.expect("reply", "refused", "resync")
        assert (answer.shard, answer.sequence) == (shard, self.applied[shard] + 1)
        if answer.kind == "reply":
            self.applied[shard] += 1
            view = self.views[shard]
            if self.rule == "average":
                view += decode(push, view.size)
            view += decode(answer.payload[STANDING_BYTES:], view.size)
        return answer

    def digest(self, shard: int) -> tuple[int, int, int]:
        """CRC32C of the view and of the centre, and how many pushes the centre has had."""
        self.tell("digest", shard=shard)
        return struct.unpack("<IIQ", self.expect("digest-is").payload)

    def agrees(self, shard: int) -> bool:
        return self.digest(shard)[0] == crc32c(self.views[shard].tobytes())

    def status(self) -> dict:
        self.tell("status")
        return json.loads(self.expect("status-is").payload)
