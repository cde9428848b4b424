"""What an aggregator does with whoever does not belong: says so, or drops them; and goes on.

Beside every stranger an honest worker exchanges all the time. It must not notice, and the
aggregator's memory must not grow.
"""

import random
import socket
import ssl
import struct
import subprocess
import time

import pytest
from integration import house as houses
from integration.house import BIAS, KERNEL, MODEL, TENSORS, House
from integration.processes import Aggregator
from integration.wire import (
    HEADER_BYTES,
    STANDING_BYTES,
    Connection,
    Model,
    Worker,
    code,
    forged,
    frame,
    told,
)

# Fixtures.
shared_house, house = houses.shared_house, houses.house


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


@pytest.mark.parametrize("rule", ["gradient-async", "gradient-sync"])
def test_huge_gradient_is_refused(rule):
    model = Model({"kernel": [64, 64]})
    with Aggregator() as aggregator, Worker(aggregator.address, model, rank=0, rule=rule) as worker:
        worker.join().load(0)
        before = worker.digest(0)
        for value in (2.0**100, float("nan")):
            answer = worker.push(0, code(4096, {7: value}))
            assert answer.kind == "refused"
            assert told(answer.payload).code == "not-finite"
        assert worker.digest(0) == before
        assert worker.push(0, code(4096, {7: 2.0**99})).kind == "reply"
        assert worker.agrees(0)


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
