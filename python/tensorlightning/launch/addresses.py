"""Under which address workers on other hosts reach the first one."""

import contextlib
import fcntl
import socket
import struct
from collections.abc import Sequence

from tensorlightning.launch.hosts import Host

_SIOCGIFADDR = 0x8915
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def address_of_first(hosts: Sequence[Host]) -> str:
    """Loopback if nobody else takes part; else its name as given, or how this machine gets out."""
    others = [host for host in hosts if not host.is_local()]
    first = hosts[0]
    if not others:
        return "127.0.0.1"
    if first.address not in _LOOPBACK:
        return first.address
    # Nothing is sent: the kernel says which of our addresses it would use.
    with contextlib.suppress(OSError):
        family, kind, _, _, where = socket.getaddrinfo(
            others[0].address, 9, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)
            return probe.getsockname()[0]
    return socket.gethostname()


def address_of_interface(name: str) -> str:
    """The IPv4 address of an interface of this machine, as in --network-interface eth0."""
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            known = ", ".join(each for _, each in socket.if_nameindex())
            raise LookupError(
                f"no IPv4 address on interface {name!r} ({error.strerror}); there are {known}"
            ) from None
    return socket.inet_ntoa(answer[20:24])


def with_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
