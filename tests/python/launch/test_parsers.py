"""Readers of hosts and messages: what they take, and that garbage never crashes them."""

import inspect
import json
import os
import random
import string

import pytest
from tensorlightning.launch import protocol
from tensorlightning.launch.hosts import MAX_SLOTS, Host, HostsError, parse_hosts, read_hostfile
from tensorlightning.launch.job import PlacementError, place
from tensorlightning.launch.protocol import LineBuffer, ProtocolError

ROUNDS = 300
PIECES = ["a", "host-1", "10.0.0.1", "[::1]", "user@", ":", "4", "0", ",", " ", "slots=", "#", "\n"]


def each_round(test):
    """A test of random input: many times, each with a seed that the failure then names."""

    def run(tmp_path):
        given = {"tmp_path": tmp_path} if "tmp_path" in inspect.signature(test).parameters else {}
        for seed in range(ROUNDS):
            try:
                test(random.Random(seed), **given)
            except BaseException as error:
                error.add_note(f"with random.Random({seed})")
                raise

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", [Host("a", 1)]),
        ("host1:4,host2:4", [Host("host1", 4), Host("host2", 4)]),
        ("me@host-1.example:2, 10.0.0.7", [Host("me@host-1.example", 2), Host("10.0.0.7", 1)]),
        ("[fe80::1]:3,[::1]", [Host("[fe80::1]", 3), Host("[::1]", 1)]),
        ("a:1,b,a:2", [Host("a", 3), Host("b", 1)]),
    ],
)
def test_hosts_are_understood(text, hosts):
    assert parse_hosts(text) == hosts


def test_hostfile_is_understood(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# ours\nhost1 slots=4\n\nhost2:2  # by colon\n  host3\n[::1] slots = 2\n")
    hosts = [Host("host1", 4), Host("host2", 2), Host("host3", 1), Host("[::1]", 2)]
    assert read_hostfile(file) == hosts


@pytest.mark.parametrize(
    "line", ["a b", "a slots=", "a:2 slots=2", "a,b", "a slots=0", "a slots=x"]
)
def test_bad_line_of_a_hostfile_is_named(line, tmp_path):
    file = tmp_path / "hosts"
    file.write_text(f"good\n{line}\n")
    with pytest.raises(HostsError, match="line 2"):
        read_hostfile(file)


@each_round
def test_any_text_gives_hosts_or_an_error(chance, tmp_path):
    text = "".join(chance.choices([*PIECES, *string.printable, "ü", "\0"], k=chance.randrange(12)))
    file = tmp_path / "hosts"
    file.write_text(text)
    for parse in (lambda: parse_hosts(text), lambda: read_hostfile(file)):
        try:
            hosts = parse()
        except HostsError as error:
            assert str(error)
            continue
        assert hosts
        for host in hosts:
            assert 1 <= host.slots <= MAX_SLOTS * text.count(host.name)
            # Nothing that ssh or a shell would take for something else.
            assert not host.name.startswith("-") and not set(host.name) & set(" \n;$`'\"|&\\/")


@each_round
def test_placement_fills_hosts_in_order(chance):
    hosts = [Host(f"h{i}", chance.randint(1, 5)) for i in range(chance.randint(1, 5))]
    slots = sum(host.slots for host in hosts)
    size = chance.randint(1, slots)
    workers = place(size, hosts)
    assert [worker.rank for worker in workers] == list(range(size))
    assert [worker.host.name for worker in workers] == sorted(w.host.name for w in workers)
    for host in hosts:
        here = [worker for worker in workers if worker.host == host]
        assert len(here) <= host.slots
        assert [worker.local_rank for worker in here] == list(range(len(here)))
        assert all(worker.local_size == len(here) for worker in here)
    assert len(place(None, hosts)) == slots
    with pytest.raises(PlacementError, match=f"{slots} slot"):
        place(slots + 1, hosts)


@each_round
def test_lines_are_found_however_they_are_cut(chance):
    lines = [chance.randbytes(chance.randrange(40)).replace(b"\n", b"") for _ in range(20)]
    data, buffer, found = b"".join(line + b"\n" for line in lines), LineBuffer(30), []
    while data:
        cut = chance.randint(1, 50)
        found += buffer.feed(data[:cut])
        data = data[cut:]
    assert found == [line for line in lines if len(line) <= 30]


def garbage(chance: random.Random) -> bytes:
    """Lines that are no messages, nearly messages, and messages with absurd fields."""
    values = [None, True, -1, 1e999, 10**30, "", "x" * 99, [], [1], {}, {"a": 1}, {"a": "b"}]
    names = ["prepare", "reserve", "address", "start", "ping", "hello", "output", "ended", 3, None]
    fields = ["folder", "environment", "path", "secret", "program", "tools", "patience", "address"]
    fields += ["who", "command", "grace", "interface", "status", "text", "stream", "pid", "report"]
    message = {field: chance.choice(values) for field in chance.sample(fields, 6)}
    key = chance.choice(["do", "event", "x"])
    line = json.dumps({key: chance.choice(names), **message}).encode()
    kind = chance.randrange(4)
    if kind == 0:
        line = chance.randbytes(30).replace(b"\n", b"")
    elif kind == 1:
        line = line[: chance.randrange(len(line))]
    elif kind == 2:
        line = b'{"do":' + chance.choice([b"[" * 5000, b'"\\ud800"}', b"9" * 5000 + b"}", b"NaN}"])
    return line + b"\n"


@each_round
def test_garbage_is_no_message_or_a_protocol_error(chance):
    for _ in range(50):
        message = protocol.decode(garbage(chance))
        if message is None:
            continue
        for check in (protocol.check_command, protocol.check_event):
            try:
                assert check(message) is message
            except ProtocolError as error:
                assert str(error)


def test_names_that_are_no_utf_8_survive_the_journey():
    message = {"do": "reserve", "address": os.fsdecode(b"\xff\xfe/n\xc3\xa4me")}
    assert protocol.decode(protocol.encode(message)) == message
