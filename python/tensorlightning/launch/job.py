"""Which rank runs where, and what each is told through its environment and arguments."""

import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorlightning.launch.hosts import Host
from tensorlightning.launch.programs import package_root
from tensorlightning.launch.protocol import IDENTITY

# The same for all workers of this run, and for none of another.
RUN = secrets.token_hex(3)

# What other hosts hear of this one's environment, besides --env.
_FORWARDED = re.compile(
    r"(?:TL|TF|KERAS|XLA|CUDA|NVIDIA|OMP|OPENBLAS|MKL|LC)_\w+|PYTHON\w+|LD_LIBRARY_PATH|LANG"
)
_PLACEHOLDER = re.compile(r"\{\{(rank|size|local_rank)\}\}|\{(rank|size|local_rank)\}")


class PlacementError(ValueError):
    """The processes don't fit on the hosts."""


@dataclass
class Worker:
    """One rank: where it runs, and how it is doing."""

    rank: int
    local_rank: int
    local_size: int
    host: Host
    attempt: int = 0
    restarts: int = 0
    state: str = "waiting"  # waiting, running, restarting, done, failed, stopped
    status: int | None = None
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def is_under_way(self) -> bool:
        return self.state in ("running", "restarting")

    def next_attempt(self) -> int:
        """Grows even when the clock is set back."""
        self.attempt = max(time.time_ns(), self.attempt + 1)
        return self.attempt


def place(size: int | None, hosts: Sequence[Host]) -> list[Worker]:
    """Ranks fill the hosts in their order. Without a size, all slots are used."""
    slots = sum(host.slots for host in hosts)
    if size is None:
        size = slots
    if size > slots:
        listed = ",".join(f"{host.name}:{host.slots}" for host in hosts)
        raise PlacementError(
            f"-np {size}, but {listed} has {slots} slot{'s' if slots > 1 else ''}; say how many "
            "processes each host may have, as in -H host1:4,host2:4"
        )
    workers: list[Worker] = []
    for host in hosts:
        here = min(host.slots, size - len(workers))
        workers += [Worker(len(workers) + i, i, here, host) for i in range(here)]
    return workers


def fill_placeholders(command: Sequence[str], worker: Worker, size: int) -> list[str]:
    """{rank}, {size} and {local_rank} in arguments; {{rank}} stands for a literal {rank}."""
    values = {"rank": worker.rank, "size": size, "local_rank": worker.local_rank}

    def fill(match: re.Match) -> str:
        return "{" + match[1] + "}" if match[1] else str(values[match[2]])

    return [_PLACEHOLDER.sub(fill, argument) for argument in command]


def common_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What all workers on all hosts share. `extra` wins."""
    shared = {
        name: value
        for name, value in os.environ.items()
        if _FORWARDED.fullmatch(name) and name not in IDENTITY
    }
    # What they print is to be seen when they print it.
    shared.setdefault("PYTHONUNBUFFERED", "1")
    # A script that is run from a clone finds the package there, after what the user has asked for.
    if root := package_root():
        given = (extra.get("PYTHONPATH") or shared.get("PYTHONPATH") or "").split(":")
        path = ":".join(dict.fromkeys([*filter(None, given), str(root)]))
        return {**shared, **extra, "PYTHONPATH": path}
    return {**shared, **extra}


def worker_environment(
    worker: Worker, size: int, job: str, aggregator: str, embed: str | None
) -> dict[str, str]:
    """What one attempt of one rank is told. The secret is not here: the agent has it."""
    told = {
        "TL_AGGREGATOR": aggregator,
        "TL_JOB": job,
        "TL_RUN": RUN,
        "TL_RANK": str(worker.rank),
        "TL_SIZE": str(size),
        "TL_LOCAL_RANK": str(worker.local_rank),
        "TL_LOCAL_SIZE": str(worker.local_size),
        "TL_ATTEMPT": str(worker.next_attempt()),
    }
    return told | {"TL_EMBED": embed} if embed and worker.rank == 0 else told
