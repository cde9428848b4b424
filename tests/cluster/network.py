"""Several hosts on one machine: network namespaces, joined by links that are as bad as one asks.

    with Network(3, rate="100mbit") as network:
        server, *clients = network.hosts
        server.popen(["tl-aggregator", f"--listen={server.address}:7000"])
        clients[0].run(["ping", "-c1", server.address])
        clients[1].partition()

With a rate alone, the kernel does everything:

    host: eth0 (tbf) ==veth== port0 (tbf) -+- bridge, in a namespace of its own -+- port1 ...

Delay and loss need the userspace switch, for there are kernels without netem:

    host: eth0 (tbf), a TAP ---- tap_switch: loss, rate, delay ---- a TAP, eth0 (tbf) ...

Nothing but the caller's traffic is on the wire. There is no ARP: neighbours are known. Interfaces
send frames as they would be on the wire, without offloads: counters include every header but the 24
bytes around a frame that no interface counts. All networks use the same addresses; they do not see
each other.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from cluster import namespaces
from cluster.bridge import Bridge
from cluster.namespaces import Namespace, NetworkError, call
from cluster.tap_switch import TapSwitch

__all__ = ["Host", "Network", "NetworkError"]

MAX_HOSTS = 250
# A host does not drop what it sends itself: whoever sends has to wait. So this is long.
HOST_QUEUE_MS = 1000
# A switch that has to wait for the processor must not lose frames by that.
TAP_QUEUE_FRAMES = 10000
_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}


class Host:
    """One machine of a network. It has a loopback and one interface, eth0."""

    def __init__(self, network: "Network", number: int):
        self.number = number
        self.address = f"10.231.0.{number + 1}"
        self.address6 = f"fd54:4c::{number + 1:x}"
        self.mac = f"02:54:4c:00:00:{number + 1:02x}"
        self.namespace = Namespace()
        self._network = network
        self._processes: list[subprocess.Popen] = []

    def popen(self, command: Sequence[object], **kwargs) -> subprocess.Popen:
        """Starts a command in this host. It is killed, at the latest, when the network closes."""
        self._processes.append(subprocess.Popen(self.namespace.wrap(command), **kwargs))
        return self._processes[-1]

    def run(self, command: Sequence[object], **kwargs) -> subprocess.CompletedProcess:
        """Runs a command in this host to its end; text, captured and checked unless told."""
        kwargs = {"check": True, "capture_output": True, "text": True} | kwargs
        return subprocess.run(self.namespace.wrap(command), **kwargs)

    def partition(self) -> None:
        """Cuts the link. Nobody is told: frames just no longer arrive, in either direction."""
        self._network.middle.cut(self.number)

    def heal(self) -> None:
        self._network.middle.mend(self.number)

    def set_rate(self, rate: str | None) -> None:
        """Changes the rate of the link, both ways; None takes the limit away."""
        bits_per_s = _bits_per_s(rate)
        self.namespace.limit("eth0", bits_per_s, HOST_QUEUE_MS)
        self._network.middle.set_rate(self.number, bits_per_s)

    def bytes(self) -> tuple[int, int]:
        """Bytes (received, sent) by eth0 so far."""
        shown = call("ip", "-n", self.namespace.name, "-s", "-j", "link", "show", "eth0")
        stats = json.loads(shown)[0]["stats64"]
        return stats["rx"]["bytes"], stats["tx"]["bytes"]

    def _close(self) -> None:
        self.namespace.delete()
        for process in self._processes:  # All killed; no zombies stay.
            process.wait(namespaces.KILL_SECONDS)


class Network:
    """Hosts that can reach each other, as long as the context lasts.

    rate: of each host's link, each way, as in "100mbit"; None for no limit
    delay_ms, loss: one way, on every path; these need the switch
    switch: the program from tap_switch.build(), which then joins the hosts; None for the kernel
    seed: which frames are lost
    queue_ms: how long a frame may wait in the middle for the rate before it is dropped
    """

    why_not = staticmethod(namespaces.why_not)

    def __init__(
        self,
        hosts: int,
        *,
        rate: str | None = None,
        delay_ms: float = 0,
        loss: float = 0,
        seed: int = 0,
        queue_ms: float = 50,
        switch: Path | None = None,
    ):
        if not 0 < hosts <= MAX_HOSTS:
            raise ValueError(f"{hosts} hosts; a network has 1 to {MAX_HOSTS}")
        if (delay_ms or loss) and not switch:
            raise ValueError("delay and loss need the userspace switch: tap_switch.build()")
        self.hosts = [Host(self, number) for number in range(hosts)]
        self._rate, self._queue_ms = rate, queue_ms
        self._delay_ms, self._loss, self._seed = delay_ms, loss, seed
        self._program = switch
        # What joins the hosts, once they are there.
        self.middle: Bridge | TapSwitch | None = None
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> "Network":
        try:
            self._undo.enter_context(_sigterm_unwinds())
            namespaces.remove_leftovers()
            for host in self.hosts:
                self._undo.callback(host._close)
                host.namespace.create()
            self.middle = self._join()
            self._undo.callback(self.middle.close)
            for host in self.hosts:
                self._configure(host)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Kills every process in the hosts and removes the hosts."""
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            self._undo.close()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def _join(self) -> Bridge | TapSwitch:
        if not self._program:
            hosts = [host.namespace for host in self.hosts]
            return Bridge(hosts, [host.mac for host in self.hosts], self._queue_ms)
        for host in self.hosts:
            settings = f"address {host.mac} txqueuelen {TAP_QUEUE_FRAMES}"
            host.namespace.ip("tuntap add eth0 mode tap", f"link set eth0 {settings}")
        return TapSwitch(
            self._program,
            [host.namespace.name for host in self.hosts],
            delay_ms=self._delay_ms,
            loss=self._loss,
            seed=self._seed,
            queue_ms=self._queue_ms,
        )

    def _configure(self, host: Host) -> None:
        neighbours = [
            f"neigh add {address} lladdr {other.mac} dev eth0 nud permanent"
            for other in self.hosts
            if other is not host
            for address in (other.address, other.address6)
        ]
        host.namespace.ip(
            "link set lo up",
            # Neither ARP nor a link-local address: these make traffic of their own.
            "link set eth0 arp off addrgenmode none",
            "link set eth0 up",
            f"addr add {host.address}/24 dev eth0",
            f"addr add {host.address6}/64 dev eth0 nodad",
            *neighbours,
        )
        host.namespace.no_offloads("eth0")
        if self._rate:
            host.set_rate(self._rate)


def _bits_per_s(rate: str | None) -> float:
    """Of "100mbit"; 0, which is no limit, of None."""
    if rate is None:
        return 0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", rate)
    if not match or float(match[1]) == 0:
        raise ValueError(f"{rate!r} is no rate, as 100mbit and 2.5gbit are")
    return float(match[1]) * _UNITS[match[2]]


@contextlib.contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """Until its end, SIGTERM ends this process by an exception, so that it cleans up on the way."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield  # Someone else has seen to it, or must.
        return
    came = False

    def unwind(*_) -> None:
        nonlocal came
        came = True
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Whoever caught the exception (pytest does) was not meant to.
        if came:
            os.kill(os.getpid(), signal.SIGTERM)
