"""Bulk transfer over loopback: a Channel beside iperf3, and with TLS beside OpenSSL's cipher.

Each end has a core of its own, ours and iperf3's alike: see StayOnCore() in bench/comm_run.h.
"""

import contextlib
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from comm_programs import Programs, run, started
from comm_series import Series

FRAME_MIB = 64
TLS_RECORD_BYTES = 16384
# Of bench/comm_run.h: where the client is, and the server.
CORES = "0,1"


def congestion_controls() -> dict:
    """The system's own, and those that a socket may ask for."""
    folder = Path("/proc/sys/net/ipv4")
    return {
        "system": (folder / "tcp_congestion_control").read_text().strip(),
        "available": (folder / "tcp_available_congestion_control").read_text().split(),
    }


def iperf3(congestion: str, seconds: int) -> float:
    """Bytes a second of one stream."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = ["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port, "--forceflush"]
    client = ["iperf3", "-c", "127.0.0.1", "-p", port, "-C", congestion, "-t", seconds, "-J"]
    if (os.cpu_count() or 1) > 1:
        client += ["-A", CORES]
    with started(server) as running:
        running.line_with("listening")
        report = json.loads(run(client))
    return report["end"]["sum_received"]["bits_per_second"] / 8


def channel(
    programs: Programs, congestion: str, seconds: int, tls: tuple[Path, Path] | None = None
) -> dict:
    """What the receiving process has seen; `tls`: a certificate and its key."""
    receive = [programs.bench, "bulk-receive", f"--congestion={congestion}"]
    send = [programs.bench, "bulk-send", f"--congestion={congestion}"]
    send += [f"--mib={FRAME_MIB}", f"--duration={seconds}s"]
    if tls:
        receive += [f"--tls-certificate={tls[0]}", f"--tls-key={tls[1]}"]
        send += [f"--tls-authority={tls[0]}"]
    with started(receive) as receiver:
        run([*send, f"--to={receiver.line_with(':')}"])
        return json.loads(receiver.line_with("received"))


def rate(received: dict) -> float:
    return received["bytes"] / received["seconds"]


def plain(
    programs: Programs, congestion: str, rounds: int, seconds: int, step: Callable[[], None]
) -> Series:
    def turn() -> tuple[float, float]:
        roof = iperf3(congestion, seconds)
        ours = rate(channel(programs, congestion, seconds))
        step()
        return ours, roof

    return Series.of_rates("bytes/s", [turn() for _ in range(rounds)], congestion=congestion)


@contextlib.contextmanager
def certificate() -> Iterator[tuple[Path, Path]]:
    """For 127.0.0.1, and its key."""
    with tempfile.TemporaryDirectory(prefix="tensorlightning-bench-") as folder:
        made, key = Path(folder) / "certificate.pem", Path(folder) / "key.pem"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "1"]
        command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=127.0.0.1"]
        command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", made, "-keyout", key]
        run(command)
        yield made, key


def evp_name(cipher: str) -> str:
    """What `openssl speed` calls the cipher of TLS_AES_256_GCM_SHA384."""
    words = cipher.removeprefix("TLS_").split("_")[:-1]
    return "-".join(words).lower()


def openssl_speed(cipher: str, seconds: int) -> float:
    """Bytes a second that one core encrypts, in records as long as TLS has them."""
    command = ["openssl", "speed", "-mr", "-seconds", seconds, "-bytes", TLS_RECORD_BYTES]
    shown = run([*command, "-evp", evp_name(cipher)])
    (line,) = [line for line in shown.splitlines() if line.startswith("+F:")]
    return float(line.split(":")[-1])


def tls(programs: Programs, rounds: int, seconds: int, step: Callable[[], None]) -> Series:
    with certificate() as pair:

        def turn() -> tuple[float, float, str]:
            received = channel(programs, "", seconds, pair)
            roof = openssl_speed(received["cipher"], 1)
            step()
            return rate(received), roof, received["cipher"]

        turns = [turn() for _ in range(rounds)]
    return Series.of_rates("bytes/s", [turn[:2] for turn in turns], cipher=turns[-1][2])
