"""What an aggregator does with whoever does not belong: says so, or drops them; and goes on.

Beside every stranger an honest worker exchanges all the time. It must not notice, and the
aggregator's memory must not grow.
"""

import contextlib
import random
import resource
import socket
import ssl
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest
from cluster.wait import until
from integration.house import BIAS, KERNEL, LARGE, MAX_GROWTH_BYTES, MODEL, TENSORS, House, Memory
from integration.wire import (
    HEADER_BYTES,
    PATIENCE_SECONDS,
    STANDING_BYTES,
    Connection,
    Model,
    Worker,
    code,
    forged,
    frame,
    told,
)


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


def test_worker_written_from_the_protocol_alone_agrees_to_the_bit(house):
    with house.guest() as guest:
        for i in range(5):
            answer = guest.push(KERNEL, code(MODEL.shards[KERNEL], {i: 0.1, 4095: -1.7}))
            assert answer.kind == "reply"
        assert guest.agrees(KERNEL)
        guest.tell("leave")
        assert guest.ends_without_a_word()


# ---- Who is not what he says, or not of this job. -----------------------------------------------


@pytest.mark.parametrize(
    ("tensors", "difference"),
    [
        (
            TENSORS | {"kernel": [64, 32]},
            "tensor 1 is 'kernel' float32 [64, 64] here and 'kernel' float32 [64, 32] there",
        ),
        (
            {"embedding": [2048, 1024], "kernel": [64, 64], "offset": [64]},
            "tensor 2 is 'bias' float32 [64] here and 'offset' float32 [64] there",
        ),
        (
            {"embedding": [2048, 1024], "kernel": [64, 64]},
            "tensor 2 is 'bias' float32 [64] here and missing there (3 tensors here, 2 there)",
        ),
    ],
    ids=["another shape", "another name", "one less"],
)
def test_worker_with_another_model_is_told_which_tensor_differs(house, tensors, difference):
    with house.worker(Model(tensors)) as stranger:
        stranger.greet()
        stranger.send(frame("join", stranger.join_payload()))
        said = stranger.complaint()
    assert said.code == "layout"
    assert difference in said.sentence


def test_worker_whose_layout_is_not_the_one_it_announced_is_refused(house):
    with house.worker() as stranger:
        stranger.greet()
        stranger.model = Model(TENSORS | {"bias": [65]})
        stranger.send(frame("join", stranger.join_payload()))
        assert stranger.complaint().code == "layout"


def test_worker_of_another_job_or_rule_is_told_both(house):
    with house.worker(job="imagenet") as stranger:
        stranger.greet()
        stranger.send(frame("join", stranger.join_payload()))
        said = stranger.complaint()
        assert said.code == "job"
        assert "'default'" in said.sentence
        assert "'imagenet'" in said.sentence
    with house.worker(rule="gradient-sync") as stranger:
        stranger.greet()
        stranger.send(frame("join", stranger.join_payload()))
        said = stranger.complaint()
        assert said.code == "rule"
        assert "average" in said.sentence
        assert "gradient-sync" in said.sentence


def test_other_protocol_version_is_told_both_versions(house):
    with house.worker() as stranger:
        stranger.send(forged(frame("hello", stranger.hello), 4, bytes([2])))
        said = stranger.complaint()
    assert said.code == "version"
    assert "version 2" in said.sentence
    assert "version 1" in said.sentence


@pytest.mark.parametrize(
    ("secret", "sentence"),
    [(b"a secret of somebody else", "another secret"), (b"", "has no secret")],
)
def test_wrong_or_missing_secret_is_refused(house, secret, sentence):
    with house.worker(secret=secret, name="eve") as stranger:
        stranger.send(frame("hello", stranger.hello))
        challenge = stranger.expect("challenge").payload
        stranger.send(frame("proof", stranger.proof_for(challenge)))
        said = stranger.complaint()
    assert said.code == "secret"
    assert "'eve'" in said.sentence
    assert sentence in said.sentence


def test_recorded_handshake_is_worth_nothing(house):
    with house.worker(rank=2) as honest:
        recorded: list[bytes] = []
        send = honest.send
        honest.send = lambda data: (recorded.append(data), send(data))
        honest.join()
    hello, proof, join = recorded
    # As it was, and all at once, as one would who does not listen.
    for parts in ([hello, proof, join], [hello + proof + join]):
        with Connection(house.address) as stranger:
            for part in parts:
                stranger.send(part)
            stranger.expect("challenge")
            assert stranger.complaint().code == "secret"


def test_own_welcome_sent_back_is_no_proof(house):
    with house.worker() as honest:
        honest.send(frame("hello", honest.hello))
        challenge = honest.expect("challenge").payload
        honest.send(frame("proof", honest.proof_for(challenge, b"TL1 aggregator")))
        assert honest.complaint().code == "secret"


def test_older_attempt_of_a_rank_is_fenced_off(house):
    attempt = time.monotonic_ns()
    with house.guest(attempt=attempt) as older, house.guest(attempt=attempt + 1) as newer:
        assert older.complaint().code == "fenced"
        with house.worker(rank=1, attempt=attempt) as ghost:
            ghost.greet()
            ghost.send(frame("join", ghost.join_payload()))
            said = ghost.complaint()
        assert said.code == "fenced"
        assert "rank 1" in said.sentence
        assert newer.push(KERNEL, code(MODEL.shards[KERNEL], {1: 1.0})).kind == "reply"


# ---- Noise. -------------------------------------------------------------------------------------


def test_random_bytes_are_refused_or_dropped(house):
    dice = random.Random(1)
    for _ in range(100):
        with Connection(house.address) as stranger:
            noise = dice.randbytes(dice.choice([1, 35, 36, 37, 100, 5000]))
            stranger.send(noise)
            stranger.socket.shutdown(socket.SHUT_WR)
            if len(noise) >= HEADER_BYTES:
                assert stranger.complaint().code == "bad-frame"
            else:
                assert stranger.ends_without_a_word()


@pytest.mark.parametrize(
    ("words", "hint"),
    [(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", "HTTP"), (b"\x16\x03\x01" + bytes(99), "TLS")],
)
def test_other_protocols_are_named(house, words, hint):
    with Connection(house.address) as stranger:
        stranger.send(words.ljust(HEADER_BYTES))
        said = stranger.complaint()
    assert said.code == "bad-frame"
    assert hint in said.sentence


def test_plain_worker_is_dropped_by_an_aggregator_with_tls(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run(made, check=True, capture_output=True)
    tls = ssl.create_default_context(cafile=certificate)
    house = House(
        f"--tls-certificate={certificate}",
        f"--tls-key={key}",
        folder=tmp_path,
        wrap=lambda plain: tls.wrap_socket(plain, server_hostname="127.0.0.1"),
    )
    try:
        before = house.owner.exchanges
        with house.worker(wrap=None) as stranger:
            stranger.send(frame("hello", stranger.hello))
            while stranger.socket.recv(1 << 16):  # At most an alert of TLS.
                pass
        with Connection(house.address):  # Neither says anything at all.
            assert house.owner.has_gone_on(before)
    finally:
        house.close()


# ---- Frames that are none. ----------------------------------------------------------------------

FOUR_GIGABYTES = b"\xff" * 4


def test_frame_of_four_gigabytes_is_refused_before_any_of_it_is_taken(house):
    with Connection(house.address) as stranger:
        stranger.send(forged(frame("hello", b""), 12, FOUR_GIGABYTES)[:HEADER_BYTES])
        said = stranger.complaint()
        assert said.code == "bad-frame"
        assert "4294967295" in said.sentence
    for kind in ("init", "push", "ping", "status", "leave"):
        with house.guest() as guest:
            whole = frame(kind, b"", KERNEL, 1, MODEL.agreed)
            guest.send(forged(whole, 12, FOUR_GIGABYTES)[:HEADER_BYTES])
            said = guest.complaint()
            assert said.code == "bad-frame"
            assert "4294967295" in said.sentence


def test_announced_join_takes_no_memory_before_it_comes(house):
    mebibytes = 15 << 20
    announced = forged(frame("join", b""), 12, struct.pack("<I", mebibytes))[:HEADER_BYTES]
    strangers = [house.worker() for _ in range(20)]
    for stranger in strangers:
        stranger.greet()
        stranger.send(announced)
    for stranger in strangers:
        assert stranger.ends_without_a_word()
        stranger.close()


def test_damaged_frame_ends_the_connection_and_changes_nothing(house):
    with house.guest() as guest:
        before = guest.digest(KERNEL)
        push = frame("push", code(MODEL.shards[KERNEL], {1: 1.0}), KERNEL, 1, MODEL.agreed)
        guest.send(push[:-6] + bytes([push[-6] ^ 1]) + push[-5:])
        said = guest.complaint()
        assert said.code == "bad-frame"
        assert "checksum" in said.sentence
    with house.guest() as guest:
        guest.send(push[:9] + bytes([push[9] ^ 1]) + push[10:])
        said = guest.complaint()
        assert said.code == "bad-frame"
        assert "checksum" in said.sentence
    with house.guest() as guest:
        assert guest.digest(KERNEL) == before


@pytest.mark.parametrize("kind", ["proof", "join", "push", "ping", "challenge", "state"])
def test_conversation_begins_with_hello(house, kind):
    with Connection(house.address) as stranger:
        stranger.send(frame(kind, bytes(32)))
        assert stranger.complaint().code == "bad-frame"


@pytest.mark.parametrize("kind", ["hello", "proof", "push", "status", "joined"])
def test_join_comes_before_all_else(house, kind):
    with house.worker() as stranger:
        stranger.greet()
        stranger.send(frame(kind, bytes(32), fingerprint=MODEL.agreed))
        assert stranger.complaint().code == "bad-frame"


def test_noise_where_a_join_is_due_is_refused(house):
    with house.worker() as stranger:
        stranger.greet()
        stranger.send(b"GET / HTTP/1.1\r\n".ljust(HEADER_BYTES))
        said = stranger.complaint()
        assert said.code == "bad-frame"
        assert "HTTP" in said.sentence


@pytest.mark.parametrize("kind", ["hello", "join", "welcome", "state", "reply", "digest-is"])
def test_frame_that_no_worker_sends_ends_the_connection(house, kind):
    with house.guest() as guest:
        guest.tell(kind)
        assert guest.complaint().code == "bad-frame"


@pytest.mark.parametrize("kind", ["pull", "push", "init", "digest"])
def test_frame_for_a_shard_that_is_not_served_ends_the_connection(house, kind):
    for shard in (len(MODEL.shards), 0xFFFFFFFF):
        with house.guest() as guest:
            guest.tell(kind, shard=shard, sequence=1)
            said = guest.complaint()
            assert said.code == "bad-frame"
            assert "not served here" in said.sentence


def test_init_of_another_than_rank_0_ends_the_connection(house):
    with house.guest() as guest:
        guest.tell("init", bytes(4 * MODEL.shards[BIAS]), BIAS)
        said = guest.complaint()
        assert said.code == "bad-frame"
        assert "rank 0" in said.sentence


# ---- Pushes that must not be applied. -----------------------------------------------------------


def assert_refused(house: House, push: bytes, why: str) -> None:
    """The centre stays as it is, the worker is told and may go on, and status counts it."""
    with house.guest() as guest:
        before, refused = guest.digest(KERNEL), guest.status()["refused"]
        answer = guest.push(KERNEL, push)
        assert answer.kind == "refused"
        assert told(answer.payload).code == why
        assert guest.digest(KERNEL) == before
        assert guest.status()["refused"] == refused + 1
        assert guest.push(KERNEL, code(MODEL.shards[KERNEL], {5: 0.5})).kind == "reply"
        assert guest.digest(KERNEL)[2] == before[2] + 1
        assert guest.agrees(KERNEL)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2.0**100, -3e38])
def test_push_of_nan_inf_or_huge_values_is_refused(house, value):
    assert_refused(house, code(MODEL.shards[KERNEL], {3: 1.0, 4: value, 9: 1.0}), "not-finite")


GOOD = code(MODEL.shards[KERNEL], {3: 1.0, 4: 2.0})


@pytest.mark.parametrize(
    "push",
    [b"", b"no code at all", GOOD[:-1], GOOD + b"\0", code(4095, {3: 1.0}), bytes(len(GOOD))],
    ids=["nothing", "text", "cut off", "too long", "of another shard", "zeros"],
)
def test_push_that_is_no_code_is_refused(house, push):
    assert_refused(house, push, "corrupt")


def test_push_is_applied_once_however_often_it_comes(house):
    with house.guest() as guest:
        reply = guest.push(KERNEL, GOOD)
        after, number = guest.digest(KERNEL), guest.applied[KERNEL]
        for _ in range(3):
            guest.tell("push", GOOD, KERNEL, number)
            again = guest.expect("reply")
            assert again.sequence == number
            assert again.payload[STANDING_BYTES:] == reply.payload[STANDING_BYTES:]
        if number > 1:
            guest.tell("push", GOOD, KERNEL, number - 1)  # A ghost gets no answer.
        guest.tell("push", GOOD, KERNEL, number + 2)
        assert guest.expect("resync").sequence == number + 2
        assert guest.digest(KERNEL) == after


# ---- Who keeps others waiting. ------------------------------------------------------------------


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
    assert "lease ran out" in house.aggregator.log(), "that is what ends a drip"


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
            assert guest.push(KERNEL, GOOD).kind == "reply"
            assert guest.status()["connections"] > wanted
        assert house.owner.has_gone_on(before)
        # All are dropped, the last ones by the deadline of a handshake.
        for connection in connections:
            while connection.recv(1 << 16):
                pass
