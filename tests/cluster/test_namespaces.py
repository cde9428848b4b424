"""That nothing of a network stays, however it ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import namespaces
from cluster.network import Network, NetworkError
from cluster.wait import until


def alive(pid: int) -> bool:
    return namespaces.start_of(pid) is not None


def interfaces() -> str:
    return namespaces.call("ip", "-brief", "link")


def ours() -> list[str]:
    return [name for name in namespaces.existing() if name.startswith(f"tl-{os.getpid()}-")]


def test_nothing_stays_when_a_network_closes(middle):
    before = interfaces()
    with pytest.raises(KeyboardInterrupt), Network(2, **middle) as network:
        assert len(ours()) >= 2
        # Its child is a process that the network has not started itself.
        shell = network.hosts[0].popen(["sh", "-c", "sleep 1000 & wait"])
        assert until(lambda: len(network.hosts[0].namespace.pids()) == 2)
        pids = network.hosts[0].namespace.pids()
        raise KeyboardInterrupt
    assert shell.returncode == -signal.SIGKILL
    assert not any(alive(pid) for pid in pids)
    assert ours() == []
    assert interfaces() == before


@pytest.mark.parametrize("bad", [{"switch": Path("/no/such/switch")}, {"rate": "fast"}])
def test_nothing_stays_of_a_network_that_can_not_be_made(bad):
    with pytest.raises((OSError, ValueError)), Network(2, **bad):
        pass
    assert ours() == []


def test_switch_says_why_it_does_not_start(switch, capfd):
    with pytest.raises(NetworkError, match="status 1"), Network(2, loss=2, switch=switch):
        pass
    assert "'2' is not a number from 0 to 1" in capfd.readouterr().err
    assert ours() == []


PARENT = """
import json, pathlib, signal, sys, time
from cluster.network import Network
signal.signal(signal.SIGINT, signal.default_int_handler)  # Not so in the background of a shell.
with Network(2, delay_ms=1, switch=pathlib.Path(sys.argv[1])) as network:
    sleeper = network.hosts[0].popen(["sleep", "1000"])
    names = [host.namespace.name for host in network.hosts]
    print(json.dumps([names, network.middle.pid, sleeper.pid]), flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def parent(switch):
    """A process with a network: itself, its namespaces, the pids of its switch and its sleeper."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, switch],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        names, switch_pid, sleeper_pid = json.loads(process.stdout.readline())
        assert set(names) <= set(namespaces.existing())
        yield process, names, switch_pid, sleeper_pid
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nothing_stays_of_a_process_that_is_asked_to_end(parent, number):
    process, names, switch_pid, sleeper_pid = parent
    process.send_signal(number)
    assert process.wait(timeout=30) == -number
    assert not alive(switch_pid)
    assert not alive(sleeper_pid)
    assert not set(names) & set(namespaces.existing())


def test_leftovers_of_a_killed_process_are_removed_by_the_next(parent):
    process, names, switch_pid, sleeper_pid = parent
    with Network(1):
        assert set(names) <= set(namespaces.existing()), "they are in use"
    process.kill()
    process.wait()
    assert until(lambda: not alive(switch_pid)), "the switch ends by itself"
    assert alive(sleeper_pid)
    with Network(1):
        assert not set(names) & set(namespaces.existing())
        assert not alive(sleeper_pid)


def test_why_not_names_the_reason(monkeypatch):
    why_not = namespaces.why_not.__wrapped__  # Without its cache.
    monkeypatch.setenv("PATH", "")
    assert "not installed: ip" in why_not()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root" in why_not()
