"""Who keeps an aggregator waiting is dropped in time, and keeps nobody else from his work."""

import contextlib
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest
from cluster.wait import until
from integration import house as houses
from integration.house import KERNEL, LARGE, MODEL, House
from integration.wire import PATIENCE_SECONDS, Connection, Worker, code, frame

# Fixtures.
shared_house, house = houses.shared_house, houses.house


def push_frame(guest: Worker, count: int = 2) -> bytes:
    push = code(MODEL.shards[KERNEL], dict.fromkeys(range(count), 1.0))
    return frame("push", push, KERNEL, guest.applied[KERNEL] + 1, MODEL.agreed)


def drip(connection: Connection, data: bytes) -> None:
    """Sends a byte now and then, until the other end has had enough."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    for byte in data:
        assert time.monotonic() < deadline, "it listens to a drip for ever"
        try:
            connection.send(bytes([byte]))
        except ConnectionError:
            return
        time.sleep(0.1)
    pytest.fail("it has taken all of it")


def say_nothing(house: House) -> None:
    with Connection(house.address) as stranger:
        assert stranger.ends_without_a_word()


def stall_in_hello(house: House) -> None:
    with house.worker() as stranger:
        stranger.send(frame("hello", stranger.hello)[:50])
        assert stranger.ends_without_a_word()


def stall_in_join(house: House) -> None:
    with house.worker() as stranger:
        stranger.greet()
        stranger.send(frame("join", stranger.join_payload())[:-5])
        assert stranger.ends_without_a_word()


def stall_in_header(house: House) -> None:
    with house.guest(rank=2) as guest:
        guest.send(push_frame(guest)[:20])
        assert guest.ends_without_a_word()


def stall_in_push(house: House) -> None:
    with house.guest(rank=3) as guest:
        guest.send(push_frame(guest)[:-10])
        assert guest.ends_without_a_word()


def drip_hello(house: House) -> None:
    with house.worker() as stranger:
        drip(stranger, frame("hello", stranger.hello))


def drip_push(house: House) -> None:
    with house.guest(rank=4) as guest:
        drip(guest, push_frame(guest, 100))


def test_who_keeps_others_waiting_is_dropped(house):
    with house.guest() as guest:
        before = guest.digest(KERNEL)
    slow = [say_nothing, stall_in_hello, stall_in_join, stall_in_header, stall_in_push]
    slow += [drip_hello, drip_push]
    with ThreadPoolExecutor(len(slow)) as threads:
        for finished in as_completed([threads.submit(how, house) for how in slow]):
            finished.result()
    with house.guest() as guest:
        assert guest.digest(KERNEL) == before, "something of a push that never came was applied"
    assert until(lambda: "lease ran out" in house.aggregator.log()), "that is what ends a drip"


def disconnections(house: House, why: str = "") -> int:
    """How often a guest's connection has ended for a reason."""
    lines = house.aggregator.log().splitlines()
    return sum("disconnected rank=1 " in line and why in line for line in lines)


@pytest.mark.parametrize("kind", ["pull", "ping", "status", "digest"])
def test_who_asks_again_and_again_and_never_reads_is_dropped(house, kind):
    before, asked, sent = disconnections(house), frame(kind, b"", LARGE[0], 0, MODEL.agreed), 0
    with house.guest(rank=1) as guest:
        guest.socket.setblocking(False)

        def is_dropped() -> bool:
            nonlocal sent
            # The kernel does not tell us: its news would come after what we do not read.
            with contextlib.suppress(BlockingIOError, ConnectionError):
                for _ in range(100):
                    sent += guest.socket.send((asked * 100)[sent % len(asked) :])
            return disconnections(house) == before + 1

        assert until(is_dropped, 60), "it answers for ever who never reads"


def test_who_does_not_read_what_he_asked_for_is_dropped(house):
    too_slow = "took nothing that was sent to it in time"
    before = disconnections(house, too_slow)
    with house.guest(rank=1) as guest:
        for shard in LARGE:  # More than the kernel holds.
            guest.tell("pull", shard=shard)
        assert until(lambda: disconnections(house, too_slow) == before + 1)


def test_ten_thousand_silent_connections_keep_nobody_out(house):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = min(most, 20_000) if most > 0 else 20_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
    # Some of ours, and the aggregator's, are in use.
    wanted = min(10_000, soft - 500)
    with contextlib.ExitStack() as silent:
        connections = [
            silent.enter_context(socket.create_connection(house.address, PATIENCE_SECONDS))
            for _ in range(wanted)
        ]
        before = house.owner.exchanges
        with house.guest() as guest:
            assert guest.push(KERNEL, code(MODEL.shards[KERNEL], {3: 1.0})).kind == "reply"
            assert guest.status()["connections"] > wanted
        assert house.owner.has_gone_on(before)
        # All are dropped, the last ones by the deadline of a handshake.
        for connection in connections:
            while connection.recv(1 << 16):
                pass
