"""What an agent still has to send to tlrun, in an order that is fair to all of its workers.

Each process has a queue of its own, and they take turns: one that floods its output fills its own
queue, is not read any further until that is shorter, and delays nobody else. Of reports only the
newest is kept: who reads slowly sees fewer of them. Short news about no process in particular go
first.
"""

import os
from collections import deque

from tensorlightning.launch.protocol import Message, encode

QUEUE_BYTES = 1 << 18


class Outbox:
    """Writes to a descriptor that does not block. Once that fails, everything is thrown away."""

    def __init__(self, descriptor: int):
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._news: deque[bytes] = deque()
        self._queues: dict[int, deque[bytes]] = {}
        self._sizes: dict[int, int] = {}
        self._reports: dict[int, bytes] = {}
        self._writing = memoryview(b"")
        self.broken = False

    def add_news(self, message: Message) -> None:
        if not self.broken:
            self._news.append(encode(message))

    def add(self, who: int, message: Message) -> None:
        """After everything that was added for this process before, reports excepted."""
        if not self.broken:
            self._append(who, encode(message))

    def add_last(self, who: int, message: Message) -> None:
        """After everything that was added for this process before, its last report too."""
        if report := self._reports.pop(who, None):
            self._append(who, report)
        self.add(who, message)

    def add_report(self, who: int, message: Message) -> None:
        """Instead of an older report that has not been sent."""
        if not self.broken:
            self._reports[who] = encode(message)

    def has_room(self, who: int) -> bool:
        return self.broken or self._sizes.get(who, 0) < QUEUE_BYTES

    def is_empty(self) -> bool:
        return not (self._writing or self._news or self._reports or self._queues)

    def close(self) -> None:
        """Nobody listens any more."""
        self.broken = True
        self._news.clear()
        self._queues.clear()
        self._sizes.clear()
        self._reports.clear()
        self._writing = memoryview(b"")

    def flush(self) -> None:
        """Writes as much as the reader takes without waiting for it."""
        while not self.is_empty():
            if not self._writing:
                self._writing = memoryview(self._next_round())
            try:
                written = os.write(self._descriptor, self._writing)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            self._writing = self._writing[written:]

    def _append(self, who: int, line: bytes) -> None:
        self._queues.setdefault(who, deque()).append(line)
        self._sizes[who] = self._sizes.get(who, 0) + len(line)

    def _next_round(self) -> bytes:
        """All news and reports, and one message of each process."""
        lines = [*self._news]
        self._news.clear()
        for who in list(self._queues):
            line = self._queues[who].popleft()
            self._sizes[who] -= len(line)
            lines.append(line)
            if not self._queues[who]:
                del self._queues[who], self._sizes[who]
        lines += self._reports.values()
        self._reports.clear()
        return b"".join(lines)
