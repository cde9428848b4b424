"""A network between two programs that fails: connections are cut, stall, drip, and overtake.

    with Proxy(aggregator.address, seed=1, most_bytes=1 << 20, longest_pause=2) as proxy:
        Load(proxy.address, ...)

Again and again something happens to a connection, after some bytes, mostly within a frame:

    cut     both ends lose it, in good order or without
    stall   nothing passes for a while; then all of it does
    drip    everything passes for a while, but slowly and in small pieces
    late    the worker loses it, but what it has sent arrives after a while, when the worker may
            already be back on another connection
"""

import asyncio
import contextlib
import math
import random
import socket
import struct
import threading
from collections import Counter

FATES = ("cut", "stall", "drip", "late")
READ_BYTES = 1 << 14
DRIP_BYTES, DRIP_SECONDS = 500, 0.002
WITHOUT_END = 1 << 60


class Proxy:
    """Listens on `address`, on a thread of its own, as long as the context lasts.

    most_bytes: until something happens to a connection
    longest_pause: of whatever happens, in seconds
    """

    def __init__(
        self, target: tuple[str, int], *, seed: int, most_bytes: int, longest_pause: float
    ):
        self.fates: Counter[str] = Counter()  # What has happened so far.
        self._target, self._dice = target, random.Random(seed)
        self._bag: list[str] = []
        self._most_bytes, self._longest_pause = most_bytes, longest_pause
        listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = listener.getsockname()
        self._loop, self._listener = asyncio.new_event_loop(), listener
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Proxy":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    def _run(self) -> None:
        self._ending = asyncio.Event()
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._listener)
        await self._ending.wait()
        server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connected(self, reader, worker: asyncio.StreamWriter) -> None:
        with contextlib.ExitStack() as undo:
            undo.callback(end, worker, False)
            with contextlib.suppress(OSError):
                answers, there = await asyncio.open_connection(*self._target)
                undo.callback(end, there, False)
                up, down = Pump(reader, there), Pump(answers, worker)
                undo.callback(up.task.cancel)
                undo.callback(down.task.cancel)
                await self._lead(up, down, worker, there)

    async def _lead(self, up: "Pump", down: "Pump", worker, there) -> None:
        """Whatever a connection has to go through, until it ends."""
        while True:
            up.allow(self._draw_bytes())
            down.allow(self._draw_bytes())
            waits = [asyncio.create_task(pump.used_up.wait()) for pump in (up, down)]
            everything = [up.task, down.task, *waits]
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if up.task.done() or down.task.done():
                return
            fate, pause = self._draw_fate(), self._dice.uniform(0, self._longest_pause)
            if fate == "cut":
                for writer in (worker, there):
                    end(writer, self._dice.random() < 0.5)
                return
            if fate == "late":
                end(worker, self._dice.random() < 0.5)
                await asyncio.sleep(pause)
                up.allow(WITHOUT_END)
                await asyncio.wait([up.task])
                return
            if fate == "drip":
                for pump in (up, down):
                    pump.allow(WITHOUT_END, drips=True)
            await asyncio.sleep(pause)

    def _draw_fate(self) -> str:
        """At random, but each as often as the others."""
        if not self._bag:
            self._bag = self._dice.sample(FATES, len(FATES))
        self.fates[self._bag[-1]] += 1
        return self._bag.pop()

    def _draw_bytes(self) -> int:
        """As likely a few as many."""
        return int(math.exp(self._dice.uniform(0, math.log(self._most_bytes))))


class Pump:
    """One direction of a connection. It stops when it has passed on what it was allowed to."""

    def __init__(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter):
        self.used_up = asyncio.Event()
        self._allowed, self._drips = 0, False
        self._go_on = asyncio.Event()
        self.task = asyncio.create_task(self._run(source, sink))

    def allow(self, count: int, drips: bool = False) -> None:
        self._allowed, self._drips = count, drips
        self.used_up.clear()
        self._go_on.set()

    async def _run(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(READ_BYTES):
                while data:
                    if self._allowed == 0:
                        self._go_on.clear()
                        self.used_up.set()
                        await self._go_on.wait()
                    count = min(self._allowed, DRIP_BYTES if self._drips else len(data))
                    sink.write(data[:count])
                    await sink.drain()
                    self._allowed -= len(data[:count])
                    data = data[count:]
                    if self._drips:
                        await asyncio.sleep(DRIP_SECONDS)


def end(writer: asyncio.StreamWriter, reset: bool) -> None:
    """Ends a connection, in good order or by a reset, as a machine does that was restarted."""
    if reset and not writer.is_closing():
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    writer.close()
