"""An agent by itself, spoken to as tlrun does."""

import os
import select
import subprocess
import sys
import time

from python.launch.runs import ROOT, environment_with
from tensorlightning.launch import protocol
from tensorlightning.launch.protocol import LineBuffer, Message

WAIT_SECONDS = 30


class Agent:
    """Has said hello; to be used in a with statement."""

    def __init__(self, **prepare: object):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tensorlightning.launch.agent"],
            env=environment_with(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._lines = LineBuffer()
        self.events: list[Message] = []
        self.wait_for("hello")
        self.send({**self.preparation(), **prepare})

    @staticmethod
    def preparation() -> Message:
        return {
            "do": "prepare",
            "folder": str(ROOT),
            "environment": {},
            "path": os.environ["PATH"],
            "secret": "",
            "program": "sh",
            "tools": [],
            "patience": 0,
        }

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *_: object) -> None:
        """Its leash is let go; it then ends all that it has started."""
        self._process.stdin.close()
        try:
            self._process.wait(WAIT_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()

    def send(self, message: Message) -> None:
        self.write(protocol.encode(message))

    def write(self, data: bytes) -> None:
        self._process.stdin.write(data)

    def start(self, who: int, script: str) -> None:
        command = ["sh", "-c", script]
        self.send({"do": "start", "who": who, "command": command, "environment": {}})

    def wait_for(self, event: str, **fields: object) -> Message:
        """The first event with these fields, also if it has come already."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            for message in self.events:
                if message["event"] == event and fields.items() <= message.items():
                    return message
            left = max(0.0, deadline - time.monotonic())
            assert select.select([self._process.stdout], [], [], left)[0], self.events
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            assert data, f"it has ended: {self.events} {self._process.stderr.read().decode()}"
            lines = self._lines.feed(data)
            self.events += [protocol.check_event(protocol.decode(line)) for line in lines]

    def index_of(self, event: str, **fields: object) -> int:
        return self.events.index(self.wait_for(event, **fields))

    def wait(self) -> int:
        """Until it has ended by itself. Its exit status."""
        return self._process.wait(WAIT_SECONDS)

    def errors(self) -> str:
        """What it has written to stderr, once it has ended."""
        return self._process.stderr.read().decode()
