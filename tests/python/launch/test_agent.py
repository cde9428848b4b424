"""An agent by itself: what it obeys, in which order it ends things, what it sends first."""

import os
import random
from pathlib import Path

from cluster.wait import until
from python.launch.agents import Agent
from python.launch.test_parsers import garbage
from tensorlightning.launch import protocol
from tensorlightning.launch.outbox import QUEUE_BYTES, Outbox
from tensorlightning.launch.protocol import AGGREGATOR
from tensorlightning.launch.watched import LineText

IGNORES_SIGTERM = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_garbage_does_it_no_harm():
    chance = random.Random(1)
    with Agent() as agent:
        agent.write(b"".join(garbage(chance) for _ in range(300)))
        agent.send({"do": "reserve", "address": "127.0.0.1"})
        assert agent.wait_for("port")["port"] > 0
        agent.send({"do": "stop", "grace": 0})
        assert agent.wait() == 0
        assert agent.errors() == ""


def test_silence_beyond_its_patience_ends_its_processes():
    with Agent(patience=1.5) as agent:
        agent.start(0, "echo ready; sleep 600")
        pid = agent.wait_for("started")["pid"]
        assert agent.wait() == 0
        assert is_gone(pid)


def test_pings_keep_it_patient():
    with Agent(patience=2) as agent:
        agent.start(0, "sleep 600")
        pid = agent.wait_for("started")["pid"]
        for _ in range(20):
            agent.send({"do": "ping"})
            assert not until(lambda: is_gone(pid), seconds=0.2)


def test_workers_end_before_the_aggregator_does(tmp_path):
    program = tmp_path / "tl-aggregator"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    with Agent(environment={"TL_PROGRAMS": str(tmp_path)}) as agent:
        command = ["tl-aggregator"]
        agent.send({"do": "start", "who": AGGREGATOR, "command": command, "environment": {}})
        agent.start(0, IGNORES_SIGTERM)
        agent.wait_for("output", text="ready\n")
        agent.send({"do": "stop", "grace": 0.5})
        first = agent.index_of("ended", who=0, status=128 + 9, stopped=True)
        assert first < agent.index_of("ended", who=AGGREGATOR, status=128 + 15, stopped=True)
        assert agent.wait() == 0


def test_kill_does_not_wait_for_the_grace():
    with Agent() as agent:
        agent.start(0, IGNORES_SIGTERM)
        agent.wait_for("output", text="ready\n")
        agent.send({"do": "stop", "grace": 3600})
        agent.send({"do": "kill"})
        agent.wait_for("ended", status=128 + 9)
        assert agent.wait() == 0


def test_what_it_cannot_start_has_ended_with_127():
    with Agent() as agent:
        message = {"do": "start", "who": 3, "command": ["no-such"], "environment": {}}
        agent.send(message)
        assert "no-such" in agent.wait_for("ended", who=3, status=127)["error"]
        agent.send({**message, "who": 4, "command": ["sh", "nul\0byte"]})
        assert "null byte" in agent.wait_for("ended", who=4, status=127)["error"]


def test_output_of_a_process_comes_before_its_end():
    with Agent() as agent:
        agent.start(5, "echo one; printf two; echo three >&2; exit 7")
        end = agent.index_of("ended", who=5, status=7, stopped=False)
        sent = [message for message in agent.events[:end] if message["event"] == "output"]
        text = dict.fromkeys(("out", "err"), "")
        for message in sent:
            text[message["stream"]] += message["text"]
        assert text == {"out": "one\ntwo\n", "err": "three\n"}


class Reader:
    """The other end of an outbox, and what has come through."""

    def __init__(self):
        self._end, write = os.pipe()
        os.set_blocking(self._end, False)
        self.outbox = Outbox(write)
        self._write = write

    def read(self) -> list[protocol.Message]:
        lines, buffer = [], protocol.LineBuffer()
        while True:
            self.outbox.flush()
            try:
                lines += buffer.feed(os.read(self._end, 1 << 16))
            except BlockingIOError:
                return [protocol.decode(line) for line in lines]

    def close_reading(self) -> None:
        os.close(self._end)

    def close(self) -> None:
        os.close(self._write)


def test_outbox_lets_processes_take_turns():
    reader = Reader()
    text = "x" * 10_000
    while reader.outbox.has_room(0):
        reader.outbox.add(0, {"who": 0, "text": text})
    reader.outbox.add(1, {"who": 1})
    reader.outbox.add_last(1, {"who": 1, "end": True})
    assert reader.outbox.has_room(1)
    received = reader.read()
    assert [message["who"] for message in received[:4]] == [0, 1, 0, 1]
    assert sum(len(message.get("text", "")) for message in received) >= QUEUE_BYTES - len(text)
    assert reader.outbox.is_empty() and reader.outbox.has_room(0)
    reader.close_reading()
    reader.close()


def test_outbox_keeps_the_newest_report_only_and_before_the_end():
    reader = Reader()
    for step in range(5):
        reader.outbox.add_report(2, {"step": step})
    reader.outbox.add_last(2, {"end": True})
    assert reader.read() == [{"step": 4}, {"end": True}]
    reader.close_reading()
    reader.close()


def test_outbox_without_a_reader_throws_everything_away():
    reader = Reader()
    reader.close_reading()
    reader.outbox.add_news({"a": 1})
    reader.outbox.flush()
    for _ in range(100):
        reader.outbox.add(0, {"text": "x" * QUEUE_BYTES})
    assert reader.outbox.broken and reader.outbox.is_empty() and reader.outbox.has_room(0)
    reader.close()


def test_text_is_the_same_however_it_is_cut():
    chance = random.Random(3)
    whole = "größer\n\nzwei\r\n😀 drei\nende".encode()
    for _ in range(200):
        text, shown, rest = LineText(), "", whole
        while rest:
            cut = chance.randint(1, 5)
            piece = text.feed(rest[:cut])
            assert not piece or piece.endswith("\n")
            shown, rest = shown + piece, rest[cut:]
        assert shown + text.feed(b"") == whole.decode() + "\n"
