"""A run, from tlrun's side: agents are started, then the aggregator, then the workers.

What happens to one process decides what happens to all:

    a worker ends well          the others go on; when all have, the run is over
    a worker fails              it starts again (--max-restarts), or everything is stopped
    an agent is lost            its workers have failed; with restarts left, the host is tried again
    the aggregator fails        as a worker; it comes back on the same port
    Ctrl-C, SIGTERM, SIGHUP     everything is stopped; once more: killed

The conductor decides and keeps the books; agents act; the display shows.
"""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field

from tensorlightning.launch import job as jobs
from tensorlightning.launch.aggregation import Aggregation
from tensorlightning.launch.display import Display, OutputClosedError
from tensorlightning.launch.hosts import Host
from tensorlightning.launch.job import Worker
from tensorlightning.launch.link import PATIENCE_SECONDS, Link, LinkError, Ssh
from tensorlightning.launch.protocol import AGGREGATOR, Message

FAILED_TO_START = 1
LOST = 255
OUTPUT_CLOSED = 128 + signal.SIGPIPE
# An agent may take this long beyond the grace: a last snapshot, descendants that hide.
CLOSE_SECONDS = 45.0
KILL_SECONDS = 3.0
LONGEST_PAUSE_SECONDS = 10.0
REFRESH_SECONDS = 0.25
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    command: Sequence[str]
    workers: list[Worker]
    aggregation: Aggregation
    environment: dict[str, str]
    folder: str
    path: str
    secret: str
    job: str
    ssh: Ssh = field(default_factory=Ssh)
    max_restarts: int = 0
    grace: float = 5.0

    @property
    def hosts(self) -> list[Host]:
        return list(dict.fromkeys(worker.host for worker in self.workers))


class Conductor:
    """Runs a plan once."""

    def __init__(self, plan: Plan, display: Display):
        self._plan = plan
        self._display = display
        self._workers = plan.workers
        self._links: dict[Host, Link] = {}
        self._beginning: asyncio.Future[None] | None = None
        self._aggregator_restarts = 0
        self._signals: list[int] = []
        # Of what is no worker.
        self._other_status = 0
        self._stopping = asyncio.Event()
        self._later: set[asyncio.Future] = set()

    async def run(self) -> int:
        """The exit status: that of the worst worker."""
        for number in _SIGNALS:
            # What nohup, or a shell for its background jobs, has told us to ignore stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, self._take_signal, number)
        ticking = asyncio.ensure_future(self._refresh())
        try:
            self._beginning = asyncio.ensure_future(self._begin())
            try:
                await self._beginning
            except LinkError as error:
                self._fail(str(error), error.status)
            except asyncio.CancelledError:
                self._stop()
            self._beginning = None
            await self._stopping.wait()
            seconds = self._plan.grace + CLOSE_SECONDS
            await asyncio.gather(*(link.close(seconds) for link in self._links.values()))
        finally:
            for task in (ticking, *self._later):
                task.cancel()
        return self._exit_status()

    # Beginning.

    async def _begin(self) -> None:
        hosts = self._plan.hosts
        results = await asyncio.gather(*map(self._connect, hosts), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            if not isinstance(failure, LinkError):
                raise failure
        if failures:
            raise LinkError("\n".join(map(str, failures)), max(each.status for each in failures))
        aggregation = self._plan.aggregation
        await aggregation.find(self._links[hosts[0]], hosts)
        self._display.say(f"{len(self._workers)} workers, aggregator at {aggregation.endpoint}")
        for worker in self._workers:
            self._start(worker)

    async def _connect(self, host: Host) -> None:
        link = Link(host, self._plan.ssh, self._take, self._lose)
        self._links[host] = link
        await link.open()
        is_first = host == self._plan.hosts[0]
        tools = ["tl-aggregator"] if is_first and self._plan.aggregation.needs_program() else []
        await link.ask(
            {
                "do": "prepare",
                "folder": self._plan.folder,
                "environment": self._plan.environment,
                "path": self._plan.path,
                "secret": self._plan.secret,
                "program": self._plan.command[0],
                "tools": tools,
                "patience": PATIENCE_SECONDS if link.is_remote else 0,
            }
        )

    def _start(self, worker: Worker) -> None:
        plan, size = self._plan, len(self._workers)
        where = plan.aggregation
        environment = jobs.worker_environment(worker, size, plan.job, where.endpoint, where.embed)
        command = jobs.fill_placeholders(plan.command, worker, size)
        worker.state, worker.status = "running", None
        worker.report.pop("done", None)
        self._links[worker.host].send(
            {"do": "start", "who": worker.rank, "command": command, "environment": environment}
        )

    # While it runs.

    def _take(self, link: Link, message: Message) -> None:
        try:
            self._take_event(link, message["event"], message)
        except OutputClosedError:
            self._other_status = self._other_status or OUTPUT_CLOSED
            self._stop()

    def _take_event(self, link: Link, event: str, message: Message) -> None:
        who = message.get("who", AGGREGATOR)
        if not AGGREGATOR <= who < len(self._workers):
            return
        if event == "log":
            self._display.say(f"{link.host.name}: {message['message']}", bad=True)
        elif event == "output" and who == AGGREGATOR:
            if not self._plan.aggregation.has_listened(message["text"]):
                self._display.output("aggregator", message["stream"], message["text"])
        elif event == "output":
            self._display.output(who, message["stream"], message["text"])
        elif event == "report" and who != AGGREGATOR:
            self._workers[who].report.update(message["report"])
            self._display.report(self._workers[who])
        elif event == "ended":
            how = message.get("error") or describe_status(message["status"])
            if who == AGGREGATOR:
                self._aggregator_ended(how, message["status"])
            else:
                self._worker_ended(self._workers[who], how, message)

    def _worker_ended(self, worker: Worker, how: str, message: Message) -> None:
        worker.status = message["status"]
        what = f"worker {worker.rank} on {worker.host.name} {how}"
        if worker.status == 0:
            worker.state = "done"
        elif message.get("stopped") or self._signals:
            worker.state = "stopped"
        elif self._stopping.is_set() or worker.restarts >= self._plan.max_restarts:
            worker.state = "failed"
            self._fail(what)
        else:
            worker.restarts += 1
            worker.state = "restarting"
            of = f"restart {worker.restarts} of {self._plan.max_restarts}"
            self._display.say(f"{what}; it starts again ({of})", bad=True)
            self._soon(self._restart(worker))
        if not any(each.is_under_way for each in self._workers):
            self._stop()

    async def _restart(self, worker: Worker) -> None:
        await asyncio.sleep(_pause(worker.restarts))
        # If its host has been lost meanwhile, it comes back with that.
        if not self._stopping.is_set() and not self._links[worker.host].is_lost:
            self._start(worker)

    def _aggregator_ended(self, how: str, status: int) -> None:
        if self._plan.aggregation.has_ended(how) or self._stopping.is_set():
            return
        if self._aggregator_restarts >= self._plan.max_restarts:
            self._fail(f"the aggregator {how}", status or FAILED_TO_START)
            return
        self._aggregator_restarts += 1
        self._display.say(f"the aggregator {how}; it starts again", bad=True)
        self._soon(self._restart_aggregator())

    async def _restart_aggregator(self) -> None:
        await asyncio.sleep(_pause(self._aggregator_restarts))
        link = self._links[self._plan.hosts[0]]
        if self._stopping.is_set() or link.is_lost:
            return
        try:
            await self._plan.aggregation.start(link)
        except LinkError as error:
            self._fail(str(error), FAILED_TO_START)

    def _lose(self, link: Link) -> None:
        """An agent has gone: at the end of a run, or by accident."""
        link.kill_groups()
        lost = [w for w in self._workers if w.host == link.host and w.is_under_way]
        for worker in lost:
            worker.status = LOST
            worker.state = "stopped"
        if self._stopping.is_set() or self._links[link.host] is not link:
            return
        had_aggregator = link.host == self._plan.hosts[0] and self._plan.aggregation.needs_program()
        if not lost and not had_aggregator:
            return
        what = f"{link.host.name}: the connection to its agent is lost"
        if any(w.restarts >= self._plan.max_restarts for w in lost) or not self._plan.max_restarts:
            for worker in lost:
                worker.state = "failed"
            self._fail(what, LOST)
            return
        for worker in lost:
            worker.restarts += 1
            worker.state = "restarting"
        self._display.say(f"{what}; its workers start again", bad=True)
        self._soon(self._reconnect(link.host, lost, had_aggregator))

    async def _reconnect(self, host: Host, lost: list[Worker], aggregator_too: bool) -> None:
        await asyncio.sleep(_pause(max((worker.restarts for worker in lost), default=1)))
        if self._stopping.is_set():
            return
        try:
            await self._connect(host)
            if aggregator_too:
                await self._plan.aggregation.start(self._links[host])
        except LinkError as error:
            for worker in lost:
                worker.state = "failed"
            self._fail(str(error), LOST)
        if not self._stopping.is_set():
            for worker in lost:
                self._start(worker)

    # Ending.

    def _fail(self, why: str, status: int = 0) -> None:
        """status: if it is not a worker's own that says what happened."""
        self._other_status = self._other_status or status
        if self._stopping.is_set():
            self._display.say(why, bad=True)
        else:
            self._stop()
            others = any(worker.state == "running" for worker in self._workers)
            self._display.say(f"{why}; stopping all workers" if others else why, bad=True)

    def _stop(self) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            for link in self._links.values():
                link.send({"do": "stop", "grace": self._plan.grace})

    def _take_signal(self, number: int) -> None:
        self._signals.append(number)
        with contextlib.suppress(OutputClosedError):
            if len(self._signals) == 1:
                self._display.say(f"{signal.Signals(number).name}: ending all workers")
            else:
                self._display.say("killing all workers")
        if len(self._signals) == 1:
            self._stop()
            if self._beginning:
                self._beginning.cancel()
            return
        loop = asyncio.get_running_loop()
        for link in self._links.values():
            link.send({"do": "kill"})
            loop.call_later(KILL_SECONDS, link.kill)
        # A third one ends tlrun itself; its agents notice that.
        for each in _SIGNALS:
            loop.remove_signal_handler(each)

    async def _refresh(self) -> None:
        while True:
            with contextlib.suppress(OutputClosedError):
                self._display.refresh()
            await asyncio.sleep(REFRESH_SECONDS)

    def _soon(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _exit_status(self) -> int:
        if self._signals:
            return 128 + self._signals[0]
        failed = [worker.status or 0 for worker in self._workers if worker.state == "failed"]
        return max([*failed, self._other_status])


def _pause(restarts: int) -> float:
    """Longer each time: what fails at once would fail at once again."""
    return min(0.5 * 2 ** (restarts - 1), LONGEST_PAUSE_SECONDS)


def describe_status(status: int) -> str:
    with contextlib.suppress(ValueError):
        if status > 128:
            return f"was ended by {signal.Signals(status - 128).name}"
    return f"ended with exit status {status}"
