"""That the hosts of a network see what was asked for."""

import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path

from cluster.network import Host, Network
from cluster.wait import until

TRAFFIC = [sys.executable, Path(__file__).with_name("traffic.py")]
PORT = 7000
# Ethernet, IPv4 and UDP.
UDP_HEADERS = 14 + 20 + 8
TCP_HEADERS = 14 + 20 + 32
TCP_PAYLOAD = 1500 - 20 - 32
MBIT = 1e6


def start(host: Host, *arguments: object) -> subprocess.Popen:
    """Starts a program of traffic.py, and waits until it is ready."""
    process = host.popen(
        [*TRAFFIC, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def send_tcp(receiver: Host, senders: list[Host], total: int) -> float:
    """Bits of payload per second that arrive, when each of the senders sends so many bytes."""
    ports = range(PORT, PORT + len(senders))
    sinks = [start(receiver, "tcp-receive", receiver.address, port) for port in ports]
    for sender, port in zip(senders, ports, strict=True):
        sender.popen([*TRAFFIC, "tcp-send", receiver.address, port, total])
    results = [json.loads(sink.communicate()[0]) for sink in sinks]
    seconds = max(r["last"] for r in results) - min(r["first"] for r in results)
    return 8 * sum(r["bytes"] for r in results) / seconds


def send_udp(receiver: Host, senders: list[Host], count: int, size: int) -> None:
    for sender in [
        sender.popen([*TRAFFIC, "udp-send", receiver.address, PORT, count, size])
        for sender in senders
    ]:
        assert sender.wait() == 0


def reaches(host: Host, address: str) -> bool:
    ping = ["ping", "-c1", "-W1", address]
    return host.run(ping, check=False).returncode == 0


def test_rate_is_kept_and_reached(middle):
    with Network(2, rate="80mbit", **middle) as network:
        a, b = network.hosts
        assert 40 * MBIT < send_tcp(a, [b], 6_000_000) < 80 * MBIT


def test_senders_share_the_link_of_their_receiver(middle):
    with Network(3, rate="80mbit", **middle) as network:
        a, b, c = network.hosts
        assert 40 * MBIT < send_tcp(a, [b, c], 4_000_000) < 80 * MBIT


def test_rate_of_one_host_can_change(middle):
    with Network(3, rate="200mbit", **middle) as network:
        a, b, c = network.hosts
        b.set_rate("20mbit")
        # A receiver that is woken up late sees more at once; without a limit it would be 200.
        assert 10 * MBIT < send_tcp(a, [b], 1_500_000) < 40 * MBIT
        assert 10 * MBIT < send_tcp(b, [a], 1_500_000) < 40 * MBIT
        assert send_tcp(a, [c], 6_000_000) > 40 * MBIT
        b.set_rate(None)
        assert send_tcp(a, [b], 6_000_000) > 40 * MBIT


def test_delay_is_in_every_round_trip(switch):
    delay_ms = 10
    with Network(2, delay_ms=delay_ms, switch=switch) as network:
        a, b = network.hosts
        for address in (b.address, b.address6):
            printed = a.run(["ping", "-c3", "-i0.01", address]).stdout
            times = [float(ms) for ms in re.findall(r"time=([\d.]+)", printed)]
            assert len(times) == 3
            assert min(times) >= 2 * delay_ms


def wait_for_frames(network: Network, host: Host, count: int) -> None:
    """Waits until the switch has done with so many frames to a host whatever it does with them."""

    def done() -> bool:
        counters = network.middle.counters()[host.number]
        return counters["delivered"] + counters["lost"] + counters["dropped"] == count

    assert until(done), network.middle.counters()


def lost_datagrams(switch: Path, loss: float, seed: int, count: int) -> set[int]:
    with Network(2, loss=loss, seed=seed, switch=switch) as network:
        a, b = network.hosts
        receiver = start(a, "udp-receive", a.address, PORT)
        send_udp(a, [b], count, 64)
        wait_for_frames(network, a, count)
        received = json.loads(receiver.communicate("\n")[0])
        assert len(received) == network.middle.counters()[a.number]["delivered"]
        assert received == sorted(received)
        return set(range(count)) - set(received)


def test_loss_is_as_likely_as_asked_and_the_seed_decides(switch):
    count, loss = 4000, 0.05
    lost = lost_datagrams(switch, loss, 1, count)
    deviation = math.sqrt(count * loss * (1 - loss))
    assert abs(len(lost) - count * loss) < 4 * deviation
    assert lost == lost_datagrams(switch, loss, 1, count)
    assert lost != lost_datagrams(switch, loss, 2, count)


def test_switch_drops_what_its_queue_can_not_hold(switch):
    with Network(3, rate="10mbit", switch=switch) as network:
        a, b, c = network.hosts
        start(a, "udp-receive", a.address, PORT)
        send_udp(a, [b, c], 300, 1400)
        wait_for_frames(network, a, 600)
        counters = network.middle.counters()[a.number]
        assert counters["dropped"] > 0
        assert counters["delivered"] > 300


def test_switch_learns_the_address_of_who_sends(switch):
    with Network(3, switch=switch) as network:
        a, b, c = network.hosts
        new = "02:54:4c:00:01:00"
        b.namespace.ip(
            f"link set eth0 address {new}",
            f"neigh replace {a.address} lladdr {a.mac} dev eth0 nud permanent",
        )
        a.namespace.ip(f"neigh replace {b.address} lladdr {new} dev eth0 nud permanent")
        assert reaches(b, a.address)
        assert c.bytes()[0] == 0, "the answer went to all"


def test_bytes_are_those_on_the_wire_and_no_others(middle):
    with Network(3, **middle) as network:
        a, b, c = network.hosts
        start(a, "udp-receive", a.address, PORT)
        send_udp(a, [b], 100, 1000)
        wire = 100 * (1000 + UDP_HEADERS)
        assert until(lambda: a.bytes()[0] == wire)
        assert b.bytes() == (0, wire)
        assert a.bytes() == (wire, 0)
        assert c.bytes() == (0, 0)


def test_bytes_have_the_headers_of_every_segment(middle):
    total = 2_000_000
    with Network(2, rate="1gbit", **middle) as network:
        a, b = network.hosts
        send_tcp(a, [b], total)
        assert b.bytes()[1] > total * (1 + TCP_HEADERS / TCP_PAYLOAD)


def test_partition_cuts_off_one_host_until_it_heals(middle):
    with Network(3, **middle) as network:
        a, b, c = network.hosts
        assert reaches(a, b.address)
        b.partition()
        received = [a.bytes()[0], b.bytes()[0]]
        assert not reaches(a, b.address)
        assert not reaches(b, a.address6)
        assert [a.bytes()[0], b.bytes()[0]] == received, "it is cut in both directions"
        assert reaches(a, c.address)
        b.heal()
        assert reaches(a, b.address)
        assert reaches(b, a.address6)


def test_connection_survives_a_partition(middle):
    with Network(2, rate="80mbit", **middle) as network:
        a, b = network.hosts
        total = 6_000_000
        sink = start(a, "tcp-receive", a.address, PORT)
        b.popen([*TRAFFIC, "tcp-send", a.address, PORT, total])
        assert until(lambda: a.bytes()[0] > total / 10)
        a.partition()
        time.sleep(0.2)
        assert sink.poll() is None
        a.heal()
        assert json.loads(sink.communicate()[0])["bytes"] == total - 1
