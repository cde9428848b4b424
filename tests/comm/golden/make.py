"""Writes one whole frame of every type to <type>.hex beside it, from comm/PROTOCOL.md alone.

It shares no code with comm/: what both agree on is the protocol. golden_test.cc checks that C++
writes exactly these bytes and reads exactly these values from them. Bytes that change are a new
protocol version.

    python tests/comm/golden/make.py
"""

import hashlib
import hmac
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent

MAGIC, VERSION = b"TLF1", 1
TYPES = {
    "hello": 1,
    "challenge": 2,
    "proof": 3,
    "welcome": 4,
    "join": 5,
    "joined": 6,
    "error": 7,
    "init": 16,
    "pull": 17,
    "state": 18,
    "no-centre": 19,
    "push": 24,
    "reply": 25,
    "refused": 26,
    "resync": 27,
    "ping": 32,
    "pong": 33,
    "leave": 34,
    "digest": 35,
    "digest-is": 36,
    "status": 37,
    "status-is": 38,
}

SECRET = b"correct horse battery staple"


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def string8(text: str) -> bytes:
    return bytes([len(text.encode())]) + text.encode()


def string16(text: str) -> bytes:
    return struct.pack("<H", len(text.encode())) + text.encode()


def frame(kind: str, payload: bytes, shard=0, sequence=0, fingerprint=0) -> bytes:
    front = struct.pack("<4sBBH", MAGIC, VERSION, TYPES[kind], 0)
    front += struct.pack("<IIQQ", shard, len(payload), sequence, fingerprint)
    header = front + struct.pack("<I", crc32c(front))
    return header + payload + struct.pack("<I", crc32c(payload))


def layout() -> bytes:
    float32, bfloat16, float64 = 0, 2, 3
    tensors = [
        ("dense/kernel", float32, [784, 128]),
        ("dense/bias", bfloat16, [128]),
        ("échelle", float64, []),
    ]
    out = struct.pack("<I", len(tensors))
    for name, dtype, shape in tensors:
        out += string16(name) + bytes([dtype, len(shape)]) + struct.pack(f"<{len(shape)}Q", *shape)
    return out


def standing(live: int, durable: int, version: int) -> bytes:
    return struct.pack("<IIQQ", live, 0, durable, version)


def code_of_two() -> bytes:
    """The code (kernels/code_format.h) of six entries, 1 and 4 of which are kept, as float32."""
    values = struct.pack("<2f", 0.5, -2.0)
    raw = 27
    bits = raw | (2 - 1) << 5 | 1 << 17 | 4 << 29
    index = bits.to_bytes((5 + 12 + 2 * 12 + 7) // 8, "little")
    body = bytes([2 - 1]) + values + index
    return b"TLC1" + struct.pack("<BxxxII", 0, 6, 2) + bytes([len(body)]) + body


def code_of_all() -> bytes:
    """The code of six entries, all of which are kept, as bfloat16."""
    values = b"".join(struct.pack("<f", v)[2:] for v in (1.0, -1.0, 0.5, -0.5, 2.0, -2.0))
    body = bytes([6 - 1]) + values + bytes([29])
    return b"TLC1" + struct.pack("<BxxxII", 1, 6, 6) + bytes([len(body)]) + body


def frames() -> dict[str, tuple[str, bytes]]:
    """Of every type: what it says, and its bytes."""
    model = layout()
    fingerprint = hashlib.sha256(model).digest()
    agreed = struct.unpack("<Q", fingerprint[:8])[0]

    hello = bytes(range(32)) + fingerprint + struct.pack("<Qi", 7, -1)
    hello += string8("mnist") + string8("host:4711")
    challenge = bytes(range(128, 160)) + bytes([1])
    proof = hmac.digest(SECRET, b"TL1 worker" + hello + challenge, "sha256")
    welcome = hmac.digest(SECRET, b"TL1 aggregator" + hello + challenge, "sha256")
    gradient_async, chunk_top_k, bits4 = 1, 0, 3
    join = struct.pack("<BBBdQ", gradient_async, chunk_top_k, bits4, 0.01, 0x0123456789ABCDEF)
    join += struct.pack("<I", len(model)) + model
    joined = struct.pack("<IIQIIIB", 3, 4, 0xFEDCBA9876543210, 10_000, 2, 5, 1)
    fenced, not_finite = 7, 8
    floats = struct.pack("<6f", 0.0, 1.5, -2.25, 3e-39, 65504.0, -0.0)

    def plain(kind: str, payload: bytes = b"") -> bytes:
        return frame(kind, payload)

    def of_shard(kind: str, payload: bytes = b"", sequence: int = 0) -> bytes:
        return frame(kind, payload, shard=2, sequence=sequence, fingerprint=agreed)

    def of_all(kind: str, payload: bytes = b"") -> bytes:
        return frame(kind, payload, fingerprint=agreed)

    return {
        "hello": ("of job mnist, worker host:4711, any rank, attempt 7", plain("hello", hello)),
        "challenge": ("that wants a secret", plain("challenge", challenge)),
        "proof": (f"of the secret '{SECRET.decode()}'", plain("proof", proof)),
        "welcome": (f"of the secret '{SECRET.decode()}'", plain("welcome", welcome)),
        "join": ("gradient-async, replies of 1% in 4 bits, three tensors", plain("join", join)),
        "joined": ("rank 3 of 4, lease 10 s, shards 2 to 4, resumed", of_all("joined", joined)),
        "error": (
            "fenced",
            plain("error", struct.pack("<H", fenced) + string16("attempt 8 has taken over")),
        ),
        "init": ("six floats of shard 2", of_shard("init", floats)),
        "pull": ("of shard 2", of_shard("pull")),
        "state": (
            "of shard 2 after push 41: 4 live, 40 durable, version 160, six floats",
            of_shard("state", standing(4, 40, 160) + floats, 41),
        ),
        "no-centre": ("of shard 2", of_shard("no-centre")),
        "push": (
            "42 of shard 2: 0.5 at 1 and -2 at 4 of six",
            of_shard("push", code_of_two(), 42),
        ),
        "reply": (
            "to push 42 of shard 2: 4 live, 41 durable, version 161, all of six",
            of_shard("reply", standing(4, 41, 161) + code_of_all(), 42),
        ),
        "refused": (
            "push 42 of shard 2, not finite",
            of_shard("refused", struct.pack("<H", not_finite) + string16("a value is NaN"), 42),
        ),
        "resync": ("of shard 2, push 42 was not applied", of_shard("resync", b"", 42)),
        "ping": ("", of_all("ping")),
        "pong": ("4 live", of_all("pong", standing(4, 0, 0))),
        "leave": ("", of_all("leave")),
        "digest": ("of shard 2", of_shard("digest")),
        "digest-is": (
            "of shard 2: of 'view' and 'centre' for want of floats, version 161",
            of_shard("digest-is", struct.pack("<IIQ", crc32c(b"view"), crc32c(b"centre"), 161)),
        ),
        "status": ("", of_all("status")),
        "status-is": ("JSON", of_all("status-is", b'{"job":"mnist","live":4}')),
    }


def text_of(kind: str, says: str, data: bytes) -> str:
    lines = [data[i : i + 32].hex() for i in range(0, len(data), 32)]
    return "\n".join([f"# {kind}{', ' if says else ''}{says}", *lines, ""])


def main() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    for kind, (says, data) in frames().items():
        (HERE / f"{kind}.hex").write_text(text_of(kind, says, data))


if __name__ == "__main__":
    main()
