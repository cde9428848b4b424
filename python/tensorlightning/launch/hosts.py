"""Which hosts a job may use, and how many processes each: -H host1:4,host2:4, or a file of them.

host          one slot            user@host:2     as somebody else
host:4        four                [fe80::1]:2     an IPv6 address
host slots=4  in a file, as for mpirun; '#' starts a comment
"""

import re
import socket
from dataclasses import dataclass
from pathlib import Path

MAX_SLOTS = 4096
_NAME = r"(?:[\w.][\w.-]*@)?(?:[\w.][\w.-]*|\[[0-9a-fA-F:.]+(?:%[\w.-]+)?\])"
_ENTRY = re.compile(rf"(?P<name>{_NAME})(?::(?P<slots>\d+))?", re.ASCII)
_LINE = re.compile(rf"(?P<entry>{_NAME}(?::\d+)?)(?:\s+slots\s*=\s*(?P<slots>\d+))?", re.ASCII)


class HostsError(ValueError):
    """A list of hosts that can't be understood; the text says where and what is wanted."""


@dataclass(frozen=True)
class Host:
    name: str
    slots: int

    @property
    def address(self) -> str:
        """Without the user, and as a socket wants it."""
        return self.name.rpartition("@")[2].strip("[]")

    @property
    def ssh_target(self) -> str:
        return self.name.replace("[", "").replace("]", "")

    def is_local(self) -> bool:
        """Whether this machine is meant, so that no ssh is needed.

        Another user on this machine is somebody for ssh, and so are 127.0.0.2 and its like.
        """
        own = {"localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()}
        return "@" not in self.name and self.address in own


def parse_hosts(text: str) -> list[Host]:
    """The value of -H."""
    return _merge([_parse_entry(entry.strip(), "-H") for entry in text.split(",")])


def read_hostfile(path: Path) -> list[Host]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HostsError(f"--hostfile {path}: {error}") from None
    hosts = []
    for number, line in enumerate(lines, start=1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        where = f"{path}, line {number}"
        match = _LINE.fullmatch(line)
        if not match or (match["slots"] and ":" in match["entry"].rpartition("]")[2]):
            raise HostsError(f"{where}: {line!r} is neither `host`, `host:N` nor `host slots=N`")
        entry = match["entry"] + (f":{match['slots']}" if match["slots"] else "")
        hosts.append(_parse_entry(entry, where))
    if not hosts:
        raise HostsError(f"--hostfile {path}: it names no host")
    return _merge(hosts)


def _parse_entry(entry: str, where: str) -> Host:
    match = _ENTRY.fullmatch(entry)
    if not match:
        raise HostsError(
            f"{where}: {entry!r} is no host; wanted is host or host:slots, several with commas "
            "between, as in host1:4,host2:4"
        )
    slots = int(match["slots"]) if match["slots"] is not None else 1
    if not 1 <= slots <= MAX_SLOTS:
        raise HostsError(f"{where}: {entry!r}: a host has 1 to {MAX_SLOTS} slots")
    return Host(match["name"], slots)


def _merge(hosts: list[Host]) -> list[Host]:
    """A host that is named twice has the slots of both, as for mpirun."""
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return [Host(name, number) for name, number in slots.items()]
