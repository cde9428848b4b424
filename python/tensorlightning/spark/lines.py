"""Lines of JSON between tasks and the driver, over TCP, for who knows the job's secret.

    driver                                    task
       {"nonce": a}                 ----->
                                    <-----    {"nonce": b, "proof": HMAC("task", a, b)}
       {"proof": HMAC("driver", b, a)} ---->
                                    <-----    {"do": "hello", ...}
       {"rank": 3, ...}             ----->    and so on: a question, an answer

Every wait has a deadline. What is not understood ends the connection.
"""

import hashlib
import hmac
import secrets
import socket
from typing import Any

from tensorlightning.launch.protocol import LineBuffer, decode, encode

HANDSHAKE_SECONDS = 10.0
MOST_BYTES = 1 << 20

Message = dict[str, Any]


class LineError(ConnectionError):
    """The other side is gone, silent, or none of us; the text says which."""


class Line:
    """One end of a connection."""

    def __init__(self, connection: socket.socket, patience: float):
        self._connection = connection
        self._lines = LineBuffer(MOST_BYTES)
        self._come: list[bytes] = []
        connection.settimeout(patience)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def own_address(self) -> str:
        """How the other side sees this host."""
        return self._connection.getsockname()[0]

    def send(self, message: Message) -> None:
        try:
            self._connection.sendall(encode(message))
        except OSError as error:
            raise LineError(f"could not be told: {error}") from error

    def receive(self) -> Message:
        while not self._come:
            try:
                data = self._connection.recv(1 << 16)
            except OSError as error:
                raise LineError(f"has not answered: {error}") from error
            if not data:
                raise LineError("has closed the connection")
            self._come += self._lines.feed(data)
        message = decode(self._come.pop(0))
        if message is None:
            raise LineError("speaks another language")
        return message

    def ask(self, message: Message) -> Message:
        self.send(message)
        return self.receive()

    def patience(self, seconds: float) -> None:
        self._connection.settimeout(seconds)

    def close(self) -> None:
        self._connection.close()


def connect(host: str, port: int, secret: str, patience: float) -> Line:
    """A task's end."""
    try:
        connection = socket.create_connection((host, port), timeout=patience)
    except OSError as error:
        raise LineError(f"can't be reached at {host}:{port}: {error}") from error
    line = Line(connection, patience)
    try:
        theirs, ours = str(line.receive().get("nonce")), secrets.token_hex(16)
        answer = line.ask({"nonce": ours, "proof": _proof(secret, "task", theirs, ours)})
        if not _same(answer.get("proof"), _proof(secret, "driver", ours, theirs)):
            raise LineError(f"{host}:{port} does not know the job's secret")
    except BaseException:
        line.close()
        raise
    return line


def admit(connection: socket.socket, secret: str, patience: float) -> Line:
    """The driver's end. A LineError for strangers."""
    line = Line(connection, HANDSHAKE_SECONDS)
    ours = secrets.token_hex(16)
    answer = line.ask({"nonce": ours})
    theirs = str(answer.get("nonce"))
    if not _same(answer.get("proof"), _proof(secret, "task", ours, theirs)):
        raise LineError("a stranger")
    line.send({"proof": _proof(secret, "driver", theirs, ours)})
    line.patience(patience)
    return line


def _proof(secret: str, who: str, *nonces: str) -> str:
    text = "\n".join((who, *nonces))
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def _same(given: Any, wanted: str) -> bool:
    return isinstance(given, str) and hmac.compare_digest(given.encode(), wanted.encode())
