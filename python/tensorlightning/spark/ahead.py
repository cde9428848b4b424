"""An iterator that a thread of its own pulls, a few items ahead of whoever wants them."""

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

# What the thread is at when it is told to stop may be a wait for rows that do not come.
_PARTING_SECONDS = 1.0


class Ahead(Generic[T]):
    """Iterates over the items; at most `most` of them have been pulled and not been taken.

    An error of the iterator's is raised after the items that came before it, and from then on.
    """

    def __init__(self, items: Iterable[T], most: int, name: str):
        self.waiting = False  # True while somebody wants an item, and it has not come.
        self._items = items
        self._most = most
        self._ready: deque[T] = deque()
        self._over = False
        self._closed = False
        self._error: BaseException | None = None
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._pull, name=name, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._change:
            if not self._wait():
                raise StopIteration
            self._change.notify_all()
            return self._ready.popleft()

    def peek(self) -> T | None:
        """The next item, which stays the next; None: there is none."""
        with self._change:
            return self._ready[0] if self._wait() else None

    def close(self) -> None:
        """The thread ends after the item that it is at; what was pulled is dropped."""
        with self._change:
            self._closed = True
            self._ready.clear()
            self._change.notify_all()
        self._thread.join(_PARTING_SECONDS)

    def _wait(self) -> bool:
        """For an item, or the end."""
        try:
            while not (self._ready or self._over or self._closed):
                self.waiting = True
                self._change.wait()
        finally:
            self.waiting = False
        if self._closed:
            raise RuntimeError("closed: there are no more rows")
        if not self._ready and self._error is not None:
            raise self._error
        return bool(self._ready)

    def _pull(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._items:
                if not self._put(item):
                    break
                del item
        except BaseException as raised:  # It is the taker's to handle, whatever it is.
            error = raised
        finally:
            with contextlib.suppress(Exception):
                getattr(self._items, "close", lambda: None)()
            with self._change:
                self._over, self._error = True, error
                self._change.notify_all()

    def _put(self, item: T) -> bool:
        """False: nobody wants it any more."""
        with self._change:
            while len(self._ready) >= self._most and not self._closed:
                self._change.wait()
            if not self._closed:
                self._ready.append(item)
                self._change.notify_all()
            return not self._closed
