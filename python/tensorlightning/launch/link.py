"""One agent as tlrun sees it: a process that takes commands and gives events, maybe behind ssh."""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tensorlightning.launch import protocol
from tensorlightning.launch.hosts import Host
from tensorlightning.launch.programs import package_root
from tensorlightning.launch.protocol import LineBuffer, Message, ProtocolError

PING_SECONDS = 5.0
# An agent behind ssh that hears nothing for so long ends its workers.
PATIENCE_SECONDS = 60.0
_AGENT = "tensorlightning.launch.agent"


class LinkError(RuntimeError):
    """Something that does not start; the text says on which host, why, and what to do."""

    def __init__(self, message: str, status: int = 1):
        """status: what tlrun exits with if this is the end of it."""
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Ssh:
    """How to reach other hosts."""

    command: Sequence[str] = ("ssh",)
    port: int | None = None
    options: Sequence[str] = ()
    remote_python: str = sys.executable
    timeout: float = 30.0

    def command_for(self, host: Host) -> list[str]:
        """Never a prompt: there is nobody to answer it."""
        settings = [
            "BatchMode=yes",
            f"ConnectTimeout={max(1, round(self.timeout))}",
            "ServerAliveInterval=10",
            "ServerAliveCountMax=3",
            *self.options,
        ]
        flags = [part for setting in settings for part in ("-o", setting)]
        port = ["-p", str(self.port)] if self.port else []
        # One word for any login shell. PYTHONSAFEPATH: no file of that user's replaces a module.
        variables = ["PYTHONSAFEPATH=1", *_python_path()]
        remote = ["exec", "env", *variables, self.remote_python, "-m", _AGENT]
        return [*self.command, "-T", *flags, *port, host.ssh_target, shlex.join(remote)]


def _python_path() -> list[str]:
    root = package_root()
    return [f"PYTHONPATH={root}"] if root else []


@dataclass
class Link:
    """The agent of one host. Events go to on_event(); on_lost() says once that it is gone."""

    host: Host
    ssh: Ssh
    on_event: Callable[["Link", Message], None]
    on_lost: Callable[["Link"], None]
    pids: dict[int, int] = field(default_factory=dict)
    is_lost: bool = False
    _errors: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    _tasks: list[asyncio.Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.is_remote = not self.host.is_local()
        self._greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers: asyncio.Queue[Message] = asyncio.Queue()
        self._process: asyncio.subprocess.Process | None = None

    async def open(self) -> None:
        """Until the agent has said hello."""
        command = self._command()
        environment = dict(os.environ)
        if not self.is_remote:
            environment |= dict(v.split("=", 1) for v in ["PYTHONSAFEPATH=1", *_python_path()])
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            # Ctrl-C is for tlrun alone, which then ends this in good order.
            start_new_session=True,
        )
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._read_errors())]
        for task in self._tasks:
            task.add_done_callback(self._look_for_mistakes)
        try:
            await asyncio.wait_for(asyncio.shield(self._greeted), self.ssh.timeout)
        except TimeoutError:
            raise LinkError(
                f"{self.host.name}: no agent within {self.ssh.timeout:g} s (see --start-timeout)"
                f"{self._said()}"
            ) from None
        self._tasks.append(asyncio.create_task(self._ping()))

    async def ask(self, message: Message) -> Message:
        """For commands that are answered: prepare, reserve, address."""
        self.send(message)
        try:
            answer = await asyncio.wait_for(self._answers.get(), self.ssh.timeout)
        except TimeoutError:
            raise LinkError(f"{self.host.name}: its agent does not answer{self._said()}") from None
        if answer["event"] == "refused":
            raise LinkError(f"{self.host.name}: {answer['message']}", answer.get("status") or 1)
        return answer

    def send(self, message: Message) -> None:
        if self._process and not self.is_lost:
            with contextlib.suppress(OSError, RuntimeError):
                self._process.stdin.write(protocol.encode(message))

    async def close(self, seconds: float) -> None:
        """Waits until it has gone by itself; after that long, kills it."""
        if not self._process:
            return
        if not self._greeted.done():
            self.kill()
        try:
            await asyncio.wait_for(asyncio.gather(*self._tasks[:2]), seconds)
            await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            self.kill()
            await self._process.wait()
        for task in self._tasks:
            task.cancel()
        self._process.stdin.close()

    def kill(self) -> None:
        """Without another word. What it has started then ends by itself, or by kill_groups()."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def kill_groups(self) -> None:
        """For an agent on this machine that was killed: its children die with it, theirs do not."""
        if self.is_remote:
            return
        for group in self.pids.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def _command(self) -> list[str]:
        if not self.is_remote:
            return [sys.executable, "-m", _AGENT]
        if not shutil.which(self.ssh.command[0]):
            raise LinkError(
                f"{self.host.name} is another host, and there is no {self.ssh.command[0]!r} here "
                "to reach it: install openssh-client, or see --ssh"
            )
        return self.ssh.command_for(self.host)

    async def _read(self) -> None:
        lines = LineBuffer()
        while data := await self._process.stdout.read(1 << 16):
            for line in lines.feed(data):
                with contextlib.suppress(ProtocolError):
                    if message := protocol.decode(line):
                        self._take(protocol.check_event(message))
            # Others are to have their turn, however much comes from here.
            await asyncio.sleep(0)
        self.is_lost = True
        if not self._greeted.done():
            status = await self._process.wait()
            await self._tasks[1]
            self._greeted.set_exception(LinkError(self._why_no_agent(status)))
            return
        self._answers.put_nowait({"event": "refused", "message": f"its agent ended{self._said()}"})
        self.on_lost(self)

    def _take(self, message: Message) -> None:
        event = message["event"]
        if not self._greeted.done():
            if event == "hello" and message["version"] == protocol.VERSION:
                self._greeted.set_result(None)
            elif event == "hello":
                self._greeted.set_exception(
                    LinkError(
                        f"{self.host.name}: another version of tensorlightning is installed there"
                    )
                )
        elif event in ("ready", "port", "address", "refused"):
            self._answers.put_nowait(message)
        else:
            if event == "started":
                self.pids[message["who"]] = message["pid"]
            elif event == "ended":
                self.pids.pop(message["who"], None)
            self.on_event(self, message)

    def _look_for_mistakes(self, task: asyncio.Task) -> None:
        """A mistake of ours ends the run, too; close() then shows it."""
        if not task.cancelled() and task.exception():
            self.is_lost = True
            self.on_lost(self)

    async def _read_errors(self) -> None:
        lines = LineBuffer(1 << 16)
        while data := await self._process.stderr.read(1 << 16):
            for line in lines.feed(data):
                text = line.decode(errors="replace").rstrip()
                self._errors.append(text)
                if self._greeted.done() and text:
                    self.on_event(self, {"event": "log", "message": text})

    async def _ping(self) -> None:
        while not self.is_lost:
            self.send({"do": "ping"})
            await asyncio.sleep(PING_SECONDS)

    def _said(self) -> str:
        lines = [line for line in self._errors if line]
        return ": " + " / ".join(lines[-3:]) if lines else ""

    def _why_no_agent(self, status: int) -> str:
        name, python = self.host.name, self.ssh.remote_python
        said = "\n".join(self._errors)
        if "No module named" in said:
            why = (
                f"{python} can't import tensorlightning there; install it at the same place as "
                "here, or name another interpreter with --remote-python"
            )
        elif not self.is_remote:
            why = f"the agent ended with status {status}"
        elif "Could not resolve hostname" in said:
            why = "no such host"
        elif "Permission denied" in said:
            why = (
                "ssh wants a password, and tlrun can't type one; give that host your key "
                f"(ssh-copy-id {self.host.ssh_target}), or start ssh-agent"
            )
        elif "Host key verification failed" in said:
            why = (
                f"ssh does not know that host yet: log in once (ssh {self.host.ssh_target}), or "
                "use --ssh-option StrictHostKeyChecking=accept-new"
            )
        elif status in (126, 127):
            why = f"there is no {python} there; name its Python with --remote-python"
        elif status == 255:
            why = "ssh can't reach it"
        else:
            why = f"the agent ended with status {status}"
        return f"{name}: {why}{self._said()}"
