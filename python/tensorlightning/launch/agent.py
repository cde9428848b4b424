"""tlrun's agent on one host: starts processes, passes on what they say, lets none outlive tlrun.

    tlrun ── pipe, or ssh ── agent ─┬─ worker, a session of its own
               JSON lines           ├─ worker
                                    └─ tl-aggregator (on the first host)

Its standard input is the leash. When that ends, because tlrun has ended in whatever way or the
connection broke, or when tlrun has been silent for too long, the agent terminates all of its
processes, kills after a grace what has not gone, and exits. Orphans are adopted by it
(PR_SET_CHILD_SUBREAPER), so that what detaches itself is found as well; and its direct children die
with it (PR_SET_PDEATHSIG) should it be killed itself.

One thread, no blocking call: safe for preexec_fn, and PDEATHSIG is tied to the thread that forks.
"""

import contextlib
import os
import platform
import selectors
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

from tensorlightning.launch import caffe, processes, protocol
from tensorlightning.launch.addresses import address_of_interface
from tensorlightning.launch.outbox import Outbox
from tensorlightning.launch.programs import ProgramMissingError, find_program
from tensorlightning.launch.protocol import AGGREGATOR, LineBuffer, Message, ProtocolError
from tensorlightning.launch.watched import Watched

LOST_GRACE_SECONDS = 5.0
# A last snapshot of a large model takes its time.
AGGREGATOR_GRACE_SECONDS = 30.0
FLUSH_SECONDS = 5.0
SWEEP_SECONDS = 10.0
# As a shell says it.
COMMAND_NOT_FOUND = 127
TICK_SECONDS = 0.05
IDLE_TICK_SECONDS = 1.0
# Set for the agent itself; a worker gets what tlrun says.
_OWN = protocol.IDENTITY | {"PYTHONPATH", "PYTHONSAFEPATH"}


class CommandMissingError(LookupError):
    """What workers are to run is not on this host."""


class Agent:
    """Reads commands from one descriptor and writes events to another until all is over."""

    def __init__(self, commands: int, events: int):
        self._commands = commands
        os.set_blocking(commands, False)
        self._lines = LineBuffer()
        self._outbox = Outbox(events)
        self._events = events
        self._watched: dict[int, Watched] = {}
        self._environment = {k: v for k, v in os.environ.items() if k not in _OWN}
        self._folder = "."
        self._patience = 0.0
        self._heard_at = time.monotonic()
        self._listening = True
        self._stop_grace: float | None = None
        self._killing = False
        self._sweep_at: float | None = None
        self._look_at = 0.0

    def run(self) -> None:
        """Until told to stop, or left alone; then until nothing of it is left."""
        wake = self._catch_signals()
        self._outbox.add_news(
            {
                "event": "hello",
                "version": protocol.VERSION,
                "host": socket.gethostname(),
                "python": platform.python_version(),
                "pid": os.getpid(),
            }
        )
        while not self._is_over():
            self._wait_and_read(wake)
            self._outbox.flush()
            self._look_after_processes()
        give_up_at = time.monotonic() + FLUSH_SECONDS
        while not self._outbox.is_empty() and time.monotonic() < give_up_at:
            self._outbox.flush()
            time.sleep(TICK_SECONDS)

    def _catch_signals(self) -> int:
        wake, wake_writer = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(wake_writer, False)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._stop(LOST_GRACE_SECONDS))
        return wake

    def _wait_and_read(self, wake: int) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            if self._listening:
                selector.register(self._commands, selectors.EVENT_READ)
            if not self._outbox.is_empty():
                selector.register(self._events, selectors.EVENT_WRITE)
            for process in self._watched.values():
                for descriptor in process.readable():
                    selector.register(descriptor, selectors.EVENT_READ, process)
            ready = selector.select(self._tick())
        for key, _ in ready:
            if key.fd == wake:
                self._look_at = 0.0
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4096)
            elif key.fd == self._commands:
                self._read_commands()
            elif key.data is not None:
                key.data.read(key.fd)

    def _tick(self) -> float:
        busy = self._stop_grace is not None or any(p.is_ending for p in self._watched.values())
        return TICK_SECONDS if busy else IDLE_TICK_SECONDS

    def _read_commands(self) -> None:
        try:
            data = os.read(self._commands, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        self._heard_at = time.monotonic()
        for line in self._lines.feed(data):
            message = protocol.decode(line)
            try:
                if message is None:
                    raise ProtocolError(f"no message: {line[:80]!r}")
                self._obey(protocol.check_command(message))
            except ProtocolError as error:
                self._outbox.add_news({"event": "log", "message": f"agent: {error}"})

    def _lose(self) -> None:
        """tlrun is gone, or can't be heard: nobody is left to tell anything."""
        self._listening = False
        self._outbox.close()
        self._stop(LOST_GRACE_SECONDS)

    def _obey(self, message: Message) -> None:
        command = message["do"]
        if command == "prepare":
            self._prepare(message)
        elif command == "reserve":
            self._reserve(message["address"])
        elif command == "address":
            self._find_address(message["interface"])
        elif command == "start":
            self._start(message)
        elif command == "stop":
            self._stop(message["grace"])
        elif command == "kill":
            self._killing = True
            self._stop(0)

    def _prepare(self, message: Message) -> None:
        """Everything that can be found out before anything is started."""
        self._environment.update(message["environment"])
        ours = self._environment.get("PATH", os.defpath)
        folders = f"{message['path']}:{ours}:{Path(sys.executable).parent}".split(":")
        self._environment["PATH"] = ":".join(dict.fromkeys(f for f in folders if f))
        if message["secret"]:
            self._environment["TL_SECRET"] = message["secret"]
        self._folder = message["folder"]
        self._patience = message["patience"]
        try:
            self._check(message["program"], message["tools"])
        except (LookupError, OSError) as error:
            status = COMMAND_NOT_FOUND if isinstance(error, CommandMissingError) else 1
            refusal = {"event": "refused", "message": str(error), "status": status}
            self._outbox.add_news(refusal)
        else:
            self._outbox.add_news({"event": "ready"})

    def _check(self, program: str, tools: list[str]) -> None:
        if not Path(self._folder).is_dir():
            raise LookupError(f"there is no folder {self._folder} (see --wdir)")
        if not self._path_of(program):
            raise CommandMissingError(
                f"there is no command {program!r}: not in {self._folder}, and not on PATH"
            )
        if caffe.is_caffe(program):
            caffe.find_plugin(self._environment)
        for tool in tools:
            find_program(tool, self._environment)

    def _path_of(self, program: str) -> str | None:
        if "/" in program:
            path = Path(self._folder, program)
            return str(path) if os.access(path, os.X_OK) and path.is_file() else None
        return shutil.which(program, path=self._environment["PATH"])

    def _reserve(self, address: str) -> None:
        """A port that is free now; nothing keeps it so, but the kernel gives new ones first."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family) as probe:
                probe.bind((address, 0))
                self._outbox.add_news({"event": "port", "port": probe.getsockname()[1]})
        except (OSError, ValueError) as error:
            self._outbox.add_news({"event": "refused", "message": f"no port on {address}: {error}"})

    def _find_address(self, interface: str) -> None:
        try:
            answer = {"event": "address", "address": address_of_interface(interface)}
        except LookupError as error:
            answer = {"event": "refused", "message": str(error)}
        self._outbox.add_news(answer)

    def _start(self, message: Message) -> None:
        who, command = message["who"], message["command"]
        environment = {**self._environment, **message["environment"]}
        try:
            if self._stop_grace is not None or who in self._watched or not command:
                raise LookupError("this is no time to start it")
            if who == AGGREGATOR:
                command = [str(find_program(command[0], environment)), *command[1:]]
            elif path := self._path_of(command[0]):
                command = [path, *command[1:]]
                environment |= caffe.loaded(path, environment)
            process = Watched(who, command, environment, self._folder, self._outbox)
        except (OSError, ValueError, ProgramMissingError, LookupError) as error:
            message = {
                "event": "ended",
                "who": who,
                "status": COMMAND_NOT_FOUND,
                "error": str(error),
            }
            self._outbox.add_last(who, message)
            return
        self._watched[who] = process
        self._outbox.add_news({"event": "started", "who": who, "pid": process.pid})

    def _stop(self, grace: float) -> None:
        """Workers first; the aggregator when they are gone."""
        self._stop_grace = grace if self._stop_grace is None else min(grace, self._stop_grace)

    def _look_after_processes(self) -> None:
        """Not more often than it has to: it reads the process table."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + TICK_SECONDS
        if self._patience and time.monotonic() - self._heard_at > self._patience:
            self._lose()
        patient = self._stop_grace is None
        for who, process in list(self._watched.items()):
            if process.poll(patient):
                del self._watched[who]
        if self._stop_grace is not None:
            self._end_processes(self._stop_grace)
        processes.reap_adopted({process.pid for process in self._watched.values()})

    def _end_processes(self, grace: float) -> None:
        workers = [process for who, process in self._watched.items() if who != AGGREGATOR]
        for process in self._watched.values() if self._killing else workers:
            process.kill() if self._killing else process.terminate(grace)
        if not workers and AGGREGATOR in self._watched:
            self._watched[AGGREGATOR].terminate(max(grace, AGGREGATOR_GRACE_SECONDS))
        if not self._watched:
            self._end_stragglers()

    def _end_stragglers(self) -> None:
        """Descendants that left their groups."""
        if self._sweep_at is None:
            self._sweep_at = time.monotonic() + (0 if self._killing else 1.0)
        gentle = time.monotonic() < self._sweep_at
        for entry in processes.descendants(os.getpid()):
            processes.signal_process(entry.pid, signal.SIGTERM if gentle else signal.SIGKILL)

    def _is_over(self) -> bool:
        if self._stop_grace is None or self._watched or self._sweep_at is None:
            return False
        # One that can't be killed hangs in the kernel; it must not make this hang, too.
        return self._sweep_at + SWEEP_SECONDS < time.monotonic() or not processes.descendants(
            os.getpid()
        )


def main() -> None:
    processes.adopt_orphans()
    # Whatever prints by mistake must not get between the messages.
    events = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    Agent(sys.stdin.fileno(), events).run()


if __name__ == "__main__":
    main()
