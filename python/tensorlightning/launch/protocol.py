"""The messages between tlrun and its agents: one JSON object per line.

tlrun to agent ("do"):                    agent to tlrun ("event"):
    prepare     before anything else          hello     first of all: it runs, in this version
    reserve     a free port, please           ready     prepared; what is asked for is there
    start       a process                     refused   not prepared, and why
    address     of this interface, please     port      this one was free
    stop        SIGTERM, later SIGKILL        address   that of the interface
    kill        SIGKILL, now                  started   a process runs
    ping        I am still here               output    of a process: whole lines
                                              report    the newest of a worker's TL_REPORT_FD
                                              ended     a process and its whole group are gone
                                              log       something a person should know

"who" is a rank, or AGGREGATOR. What isn't a message (a login script that prints, say) is no error
of the protocol: decode() gives None for it and the reader goes on.
"""

import json
from typing import Any

VERSION = 1
AGGREGATOR = -1
# A line of output is at most MAX_OUTPUT_LINE bytes, each six characters of JSON at worst.
MAX_OUTPUT_LINE = 1 << 18
MAX_LINE = 8 << 20
# Variables that tell a worker who it is: only tlrun sets them, whatever was there by chance.
IDENTITY = frozenset(
    {
        "TL_AGGREGATOR",
        "TL_ATTEMPT",
        "TL_EMBED",
        "TL_JOB",
        "TL_LOCAL_RANK",
        "TL_LOCAL_SIZE",
        "TL_RANK",
        "TL_REPORT_FD",
        "TL_RUN",
        "TL_SECRET",
        "TL_SECRET_FILE",
        "TL_SIZE",
    }
)

Message = dict[str, Any]

_STRINGS = "a list of strings"
_VARIABLES = "an object of strings"
_COMMANDS: dict[str, dict[str, Any]] = {
    "prepare": {
        "folder": str,
        "environment": _VARIABLES,
        "path": str,
        "secret": str,
        "program": str,
        "tools": _STRINGS,
        "patience": float,
    },
    "reserve": {"address": str},
    "address": {"interface": str},
    "start": {"who": int, "command": _STRINGS, "environment": _VARIABLES},
    "stop": {"grace": float},
    "kill": {},
    "ping": {},
}
_EVENTS: dict[str, dict[str, Any]] = {
    "hello": {"version": int},
    "ready": {},
    "refused": {"message": str},
    "port": {"port": int},
    "address": {"address": str},
    "started": {"who": int, "pid": int},
    "output": {"who": int, "stream": str, "text": str},
    "report": {"who": int, "report": dict},
    "ended": {"who": int, "status": int},
    "log": {"message": str},
}


class ProtocolError(ValueError):
    """A message that can't be understood; the text says which part."""


def encode(message: Message) -> bytes:
    """As one line. Lone surrogates (names that are no UTF-8) survive the journey as escapes."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Message | None:
    """The object on this line, or None if there is none."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def check_command(message: Message) -> Message:
    """The same message, if an agent can rely on its fields."""
    return _check(message, "do", _COMMANDS)


def check_event(message: Message) -> Message:
    """The same message, if tlrun can rely on its fields."""
    return _check(message, "event", _EVENTS)


def _check(message: Message, key: str, known: dict[str, dict[str, Any]]) -> Message:
    name = message.get(key)
    if not isinstance(name, str) or name not in known:
        raise ProtocolError(f"no {key} is called {name!r}")
    for field, kind in known[name].items():
        if not _is(message.get(field), kind):
            wanted = kind if isinstance(kind, str) else kind.__name__
            raise ProtocolError(f"{name}: {field!r} is not {wanted}")
    return message


def _is(value: Any, kind: Any) -> bool:
    if kind is _STRINGS:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if kind is _VARIABLES:
        return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    if kind is float:
        # NaN and infinities are no durations.
        return type(value) in (int, float) and 0 <= value <= 1e9
    return type(value) is kind


class LineBuffer:
    """Bytes in, whole lines out. A line longer than the limit is dropped, not kept in memory."""

    def __init__(self, limit: int = MAX_LINE):
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._dropping = False

    def feed(self, data: bytes) -> list[bytes]:
        *ends, rest = data.split(b"\n")
        lines = []
        for end in ends:
            self._keep(end)
            if not self._dropping:
                lines.append(b"".join(self._parts))
            self._forget()
            self._dropping = False
        self._keep(rest)
        return lines

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._forget()
            self._dropping = True
        elif part and not self._dropping:
            self._parts.append(part)

    def _forget(self) -> None:
        self._parts.clear()
        self._size = 0
