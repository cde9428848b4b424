"""A bridge of the kernel, in a namespace of its own, that joins hosts by pairs of veth."""

from collections.abc import Sequence

from cluster.namespaces import Namespace


class Bridge:
    """Port n leads to the n-th of the namespaces, where the other end of the veth is eth0."""

    def __init__(self, namespaces: Sequence[Namespace], addresses: Sequence[str], queue_ms: float):
        self._namespace = Namespace()
        self._queue_ms = queue_ms
        try:
            self._build(namespaces, addresses)
        except BaseException:
            self.close()
            raise

    def set_rate(self, port: int, bits_per_s: float) -> None:
        self._namespace.limit(f"port{port}", bits_per_s, self._queue_ms)

    def cut(self, port: int) -> None:
        # Neither "link down", which the host would see, nor DROP in the host, which the sender
        # would: a bridge port that is disabled passes nothing on, and says nothing.
        self._namespace.bridge(f"link set dev port{port} state 0")

    def mend(self, port: int) -> None:
        self._namespace.bridge(f"link set dev port{port} state 3")

    def close(self) -> None:
        self._namespace.delete()

    def _build(self, namespaces: Sequence[Namespace], addresses: Sequence[str]) -> None:
        self._namespace.create()
        # A bridge and its ports would announce themselves.
        self._namespace.sysctl("net.ipv6.conf.default.disable_ipv6", 1)
        self._namespace.ip("link add bridge type bridge mcast_snooping 0", "link set bridge up")
        for port, (namespace, address) in enumerate(zip(namespaces, addresses, strict=True)):
            end = f"peer name eth0 address {address} netns {namespace.name}"
            self._namespace.ip(
                f"link add port{port} type veth {end}", f"link set port{port} master bridge up"
            )
            self._namespace.no_offloads(f"port{port}")
            # A host that only listens would never be learnt, and frames to it would flood all.
            self._namespace.bridge(f"fdb add {address} dev port{port} master static")
