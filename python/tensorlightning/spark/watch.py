"""The driver's end of the lines to its tasks: gives ranks, hears beats, tells who must end.

One thread accepts, one per connection answers. A task asks and is answered; the driver never speaks
first, so that a task behind a broken network holds up nobody.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from tensorlightning.spark import lines
from tensorlightning.spark.places import Places

# Tasks beat every second. Longer than any pause of theirs that is not their end.
PATIENCE_SECONDS = 60.0
_MOST_STRANGERS = 256
# Enough for a beat of everybody.
_PARTING_SECONDS = 3.0

Answer = dict[str, Any]


class Watch:
    """Listens until close()."""

    def __init__(self, places: Places, secret: str, bind: str, port: int = 0):
        self.places = places
        self.lock = threading.RLock()
        # Where tasks find the aggregator; None until it is known.
        self.aggregator: str | None = None
        self._secret = secret
        self._stop: str | None = None
        self._fatal: Callable[[str], None] = lambda _: None
        self._open: set[socket.socket] = set()
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._listener = socket.create_server((bind, port), family=family, backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="tensorlightning-watch", daemon=True).start()

    def on_fatal(self, call: Callable[[str], None]) -> None:
        """Called with a task's error that another attempt would only repeat."""
        self._fatal = call

    def stop(self, reason: str) -> None:
        """Whoever asks from now on is told to end."""
        self._stop = reason

    def part(self) -> None:
        """Tells whoever is still there to end, and waits for that a little."""
        self.stop(self._stop or "the driver has ended the job")
        until = time.monotonic() + _PARTING_SECONDS
        while self.places.are_connected() and time.monotonic() < until:
            time.sleep(0.05)

    def close(self) -> None:
        """Who is still there is told to end before the lines are cut."""
        self.part()
        # Wakes up the thread that accepts; closing alone would not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self.lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self.lock:
                expected = max(self.places.size or 0, len(self.places.by_partition))
                full = len(self._open) >= expected + _MOST_STRANGERS
                if not full:
                    self._open.add(connection)
            if full:
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        who: tuple[int, int] | None = None
        try:
            line = lines.admit(connection, self._secret, PATIENCE_SECONDS)
            while True:
                message = line.receive()
                if message.get("do") == "hello":
                    who = int(message["partition"]), int(message["attempt"])
                line.send(self._answer(message, id(connection)))
        except (lines.LineError, KeyError, TypeError, ValueError):
            pass  # It is gone, or talks nonsense: both end here, and its place says so.
        finally:
            with self.lock:
                self._open.discard(connection)
                if who is not None:
                    self.places.hung_up(*who, id(connection))
            connection.close()

    def _answer(self, message: Answer, line: int) -> Answer:
        what = message["do"]
        if what == "aggregator":
            where = str(message["where"])
            if self.aggregator not in (None, where):
                self._fatal("the aggregator's task was lost, and what it knew with it")
                return {"stop": "another one had started before"}
            self.aggregator = where
            return {"stop": self._stop} if self._stop else {}
        partition, attempt = int(message["partition"]), int(message["attempt"])
        if what == "failed":
            error = str(message["error"])
            with self.lock:
                ours = self.places.is_current(partition, attempt)
                self.places.failed(partition, attempt, error)
            if message.get("fatal") and ours:
                self._fatal(f"partition {partition}: {error}")
            return {}
        if self._stop:
            return {"stop": self._stop}
        with self.lock:
            if what == "beat":
                return self.places.beat(partition, attempt, message)
            if what == "done":
                return self.places.done(partition, attempt, dict(message["record"]))
            if what == "reopen":
                return self.places.reopen(partition, attempt)
            if what != "hello":
                raise ValueError(what)
            if self.aggregator is None:
                return {"wait": "the aggregator has not started yet"}
            answer = self.places.hello(
                partition, attempt, str(message["host"]), int(message["pid"]), line
            )
            return answer | {"aggregator": self.aggregator}
