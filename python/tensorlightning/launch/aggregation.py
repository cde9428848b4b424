"""The aggregator of a run: a process beside rank 0, a part of rank 0's, or one that is there.

Beside: tl-aggregator on the first host, on a port that the kernel chooses and that stays the same
should it have to start again. Embedded: rank 0 is told where to listen (TL_EMBED). In both cases it
listens on loopback only, unless other hosts take part.
"""

import asyncio
from collections.abc import Sequence

from tensorlightning.launch.addresses import address_of_first, with_port
from tensorlightning.launch.hosts import Host
from tensorlightning.launch.link import Link, LinkError
from tensorlightning.launch.protocol import AGGREGATOR

BESIDE = "beside"
EMBEDDED = "embedded"


class Aggregation:
    """Where workers find the aggregator, once find() is over."""

    def __init__(
        self,
        kind: str,
        job: str,
        options: Sequence[str] = (),
        port: int = 0,
        address: str | None = None,
        interface: str | None = None,
        timeout: float = 30.0,
    ):
        """kind: BESIDE, EMBEDDED, or the endpoint of one that runs already."""
        self.kind = kind
        self.endpoint = "" if kind in (BESIDE, EMBEDDED) else kind
        self.embed: str | None = None
        self._job, self._options, self._port = job, list(options), port
        self._address, self._interface, self._timeout = address, interface, timeout
        self._bind = "127.0.0.1"
        self._listening: asyncio.Future[str] | None = None

    def needs_program(self) -> bool:
        return self.kind == BESIDE

    async def find(self, link: Link, hosts: Sequence[Host]) -> None:
        """Starts it if need be. link: to the first host's agent."""
        if self.endpoint:
            return
        address = self._address or address_of_first(hosts)
        if self._interface:
            address = (await link.ask({"do": "address", "interface": self._interface}))["address"]
        if self._address or self._interface or not all(host.is_local() for host in hosts):
            self._bind = "::" if ":" in address else "0.0.0.0"
        if self.kind == BESIDE:
            await self.start(link)
        else:
            if not self._port:
                answer = await link.ask({"do": "reserve", "address": self._bind})
                self._port = answer["port"]
            self.embed = with_port(self._bind, self._port)
        self.endpoint = with_port(address, self._port)

    async def start(self, link: Link) -> None:
        """Until it listens; also again, after it has ended."""
        self._listening = asyncio.get_running_loop().create_future()
        command = [
            "tl-aggregator",
            f"--listen={with_port(self._bind, self._port)}",
            f"--job={self._job}",
            *self._options,
        ]
        link.send({"do": "start", "who": AGGREGATOR, "command": command, "environment": {}})
        try:
            endpoint = await asyncio.wait_for(self._listening, self._timeout)
        except TimeoutError:
            raise LinkError("the aggregator does not listen (see --start-timeout)") from None
        self._port = int(endpoint.rpartition(":")[2])

    def has_listened(self, text: str) -> bool:
        """Whether this output says where it listens; a person need not see that."""
        if not text.startswith("listening on ") or not self._listening:
            return False
        if not self._listening.done():
            self._listening.set_result(text.split()[2])
        return True

    def has_ended(self, how: str) -> bool:
        """Whether somebody waits in start() and hears of it there."""
        if not self._listening or self._listening.done():
            return False
        self._listening.set_exception(LinkError(f"the aggregator {how} before it listened"))
        return True
