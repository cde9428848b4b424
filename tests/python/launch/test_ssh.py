"""tlrun on several hosts, through a real sshd."""

import json
import re
import signal
import socket
import sys
from pathlib import Path

import pytest
from cluster.wait import until
from python.launch.runs import (
    DAEMON,
    NO_AGGREGATOR,
    SLEEP,
    STUBBORN,
    WAIT,
    Run,
    all_ready,
    finish,
    worker,
)
from python.launch.ssh_server import HOSTS, SshServer

TWO_BY_TWO = ["-np", "4", "-H", f"{HOSTS[0]}:2,{HOSTS[1]}:2"]


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    server = SshServer(tmp_path_factory.mktemp("sshd"))
    yield server
    server.close()


@pytest.fixture
def server(shared_server):
    """An sshd on which nothing may be left after the test."""
    yield shared_server
    assert until(lambda: not shared_server.sessions())


def test_ranks_fill_the_hosts_in_order(server, tmp_path):
    code = """
names = "TL_RANK", "TL_SIZE", "TL_LOCAL_RANK", "TL_LOCAL_SIZE", "SSH_CONNECTION", "TL_AGGREGATOR"
print(json.dumps([os.environ[name] for name in names] + [os.getcwd()]))
"""
    with Run(*TWO_BY_TWO, *server.options, NO_AGGREGATOR, *worker(code), folder=tmp_path) as run:
        assert run.wait() == 0, run.errors()
        lines = sorted(run.output().splitlines())
        assert run.leaves_nothing()
    told = [json.loads(line.split(" ", 1)[1]) for line in lines]
    assert [t[:4] for t in told] == [
        ["0", "4", "0", "2"],
        ["1", "4", "1", "2"],
        ["2", "4", "0", "2"],
        ["3", "4", "1", "2"],
    ]
    assert [t[4].split()[2] for t in told] == [HOSTS[0], HOSTS[0], HOSTS[1], HOSTS[1]]
    assert {t[5] for t in told} == {"127.0.0.1:9"}
    assert {t[6] for t in told} == {str(tmp_path)}


def test_aggregator_runs_on_the_first_host_and_the_other_reaches_it(server, programs):
    code = """
import socket
host, port = os.environ["TL_AGGREGATOR"].rsplit(":", 1)
socket.create_connection((host, int(port)), 10).close()
print(host, len(os.environ["TL_SECRET"]))
"""
    status, output, errors = finish(
        *TWO_BY_TWO, *server.options, *worker(code), TL_PROGRAMS=programs
    )
    assert status == 0, errors
    assert sorted(output.splitlines()) == [f"[{rank}] {HOSTS[0]} 64" for rank in range(4)]


def test_real_workers_on_two_hosts_meet_at_the_aggregator(server, programs):
    load = [f"{programs}/tl-load", "--workers=1", "--rank-base={rank}", "--steps=20", "--check"]
    arguments = [*TWO_BY_TWO, *server.options, *load, "--layout=100000"]
    status, output, errors = finish(*arguments, TL_PROGRAMS=programs)
    assert status == 0, errors
    assert len(re.findall(r"^\[\d\] +views agree +yes$", output, re.MULTILINE)) == 4


@pytest.mark.parametrize(
    ("option", "address"),
    [("--address=127.0.0.9", "127.0.0.9"), ("--network-interface=lo", "127.0.0.1")],
)
def test_address_of_the_first_host_can_be_chosen(server, option, address):
    hosts = ["-H", f"localhost,{HOSTS[1]}", *server.options]
    code = "print(os.environ['TL_AGGREGATOR'], os.environ.get('TL_EMBED'))"
    status, output, _ = finish(*hosts, "--aggregator=embedded", option, *worker(code))
    assert status == 0
    first, second = sorted(output.splitlines())
    assert re.fullmatch(rf"\[0\] {address}:(\d+) 0\.0\.0\.0:\1", first)
    assert re.fullmatch(rf"\[1\] {address}:\d+ None", second)


def test_this_machine_is_known_to_others_by_the_address_it_reaches_them_with(server):
    code = "print(os.environ['TL_AGGREGATOR'])"
    hosts = ["-H", f"localhost,{HOSTS[1]}", *server.options]
    status, output, _ = finish(*hosts, "--aggregator=embedded", *worker(code))
    assert status == 0
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.connect((HOSTS[1], 9))
        own = probe.getsockname()[0]
    assert re.fullmatch(rf"\[1\] {own}:\d+", sorted(output.splitlines())[1])


def test_secret_is_on_no_command_line_of_any_host(server, programs):
    code = "say(os.environ['TL_SECRET']); time.sleep(600)"
    with Run(*TWO_BY_TWO, *server.options, *worker(code), TL_PROGRAMS=programs) as run:
        assert until(lambda: run.output().count("\n") == 4)
        secret = run.output().split()[1].encode()
        everybody = [*run.living(), *server.sessions()]
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in everybody]
        assert sum(b"launch.agent" in line for line in lines) >= 4  # Two ssh, two agents.
        assert not any(secret in line for line in lines)
        run.signal(signal.SIGTERM)
        assert run.wait() == 128 + signal.SIGTERM


def test_one_that_fails_ends_the_others_on_other_hosts(server):
    code = f"{DAEMON}\nif rank == 3: sys.exit(4)\n{SLEEP}"
    status, _, errors = finish(*TWO_BY_TWO, *server.options, NO_AGGREGATOR, *worker(code))
    assert status == 4
    assert f"worker 3 on {HOSTS[1]} ended with exit status 4" in errors


@pytest.mark.parametrize("terminal", [False, True])
def test_ctrl_c_leaves_no_orphans_on_any_host(server, terminal):
    command = [*TWO_BY_TWO, *server.options, NO_AGGREGATOR, *worker(DAEMON + SLEEP)]
    with Run(*command, terminal=terminal) as run:
        assert all_ready(run, 4)
        run.type(b"\x03") if terminal else run.signal(signal.SIGINT)
        assert run.wait() == 128 + signal.SIGINT
        assert run.leaves_nothing()


@pytest.mark.parametrize("stubborn", ["", STUBBORN])
def test_tlrun_killed_by_kill_9_leaves_no_orphans_on_any_host(server, programs, stubborn):
    command = [*TWO_BY_TWO, *server.options, *worker(stubborn + DAEMON + SLEEP)]
    with Run(*command, TL_PROGRAMS=programs) as run:
        assert all_ready(run, 4)
        run.signal(signal.SIGKILL)
        assert run.wait() == -signal.SIGKILL
        assert run.leaves_nothing()


def test_connection_that_breaks_ends_the_run_on_both_sides(server):
    command = [*TWO_BY_TWO, *server.options, NO_AGGREGATOR, *worker(DAEMON + SLEEP)]
    with Run(*command) as run:
        assert all_ready(run, 4)
        server.cut()
        assert run.wait() == 255
        assert "the connection to its agent is lost" in run.errors()
        assert run.leaves_nothing()


def test_connection_that_breaks_is_made_again(server, tmp_path):
    arguments = ["--max-restarts=1", NO_AGGREGATOR, *worker(WAIT, tmp_path)]
    with Run(*TWO_BY_TWO, *server.options, *arguments) as run:
        assert all_ready(run, 4)
        server.cut()
        assert all_ready(run, 8)
        (tmp_path / "go").touch()
        assert run.wait() == 0, run.errors()


def test_host_that_asks_for_a_password_is_refused_with_advice(tmp_path):
    server = SshServer(tmp_path, password=True)
    server.let_in("")
    try:
        command = ["-H", HOSTS[0], *server.options, NO_AGGREGATOR, "true"]
        status, _, errors = finish(*command)
    finally:
        server.close()
    assert status == 1
    assert f"{HOSTS[0]}: ssh wants a password" in errors
    assert "ssh-copy-id" in errors


def test_host_whose_key_is_unknown_is_refused_with_advice(tmp_path):
    server = SshServer(tmp_path)
    server.forget_hosts()
    try:
        status, _, errors = finish("-H", HOSTS[0], *server.options, NO_AGGREGATOR, "true")
    finally:
        server.close()
    assert status == 1
    assert "ssh does not know that host yet" in errors


def test_host_that_does_not_answer_is_named(server):
    silent = "127.0.0.4"
    hosts = f"{HOSTS[0]},{silent}"
    status, _, errors = finish("-H", hosts, *server.options, NO_AGGREGATOR, "true")
    assert status == 1
    assert f"tlrun: {silent}: ssh can't reach it" in errors
    assert "Connection refused" in errors


def test_host_that_is_not_known_is_named(server):
    name = "no-such-host.invalid"
    status, _, errors = finish("-H", name, *server.options, NO_AGGREGATOR, "true")
    assert status == 1
    assert f"tlrun: {name}: " in errors


def test_host_that_accepts_and_stays_silent_is_given_up(server):
    with socket.create_server(("127.0.0.4", 0)) as silent:
        port = str(silent.getsockname()[1])
        options = ["--ssh-port", port, "--start-timeout=1"]
        status, _, errors = finish("-H", "127.0.0.4", *server.options, *options, NO_AGGREGATOR, "a")
    assert status == 1
    assert "127.0.0.4: " in errors


@pytest.mark.parametrize(
    ("python", "complaint"),
    [
        ("/nonexistent/python", "there is no /nonexistent/python there; name its Python with"),
        ("/bin/true", "the agent ended with status 0"),
    ],
)
def test_host_without_our_python_is_refused(server, python, complaint):
    options = [*server.options, "--remote-python", python, NO_AGGREGATOR]
    status, _, errors = finish("-H", HOSTS[0], *options, "true")
    assert status == 1
    assert f"{HOSTS[0]}: {complaint}" in errors


def test_host_whose_python_lacks_the_package_is_refused(server, tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nexec env -u PYTHONPATH python3 -I "$@"\n')
    python.chmod(0o755)
    options = [*server.options, "--remote-python", str(python), NO_AGGREGATOR]
    status, _, errors = finish("-H", HOSTS[0], *options, "true")
    assert status == 1
    assert "can't import tensorlightning there" in errors


def test_folder_or_command_that_is_not_there_is_named_with_its_host(server):
    base = ["-H", HOSTS[1], *server.options, NO_AGGREGATOR]
    status, _, errors = finish(*base, "no-such-command")
    assert status == 127
    assert f"{HOSTS[1]}: there is no command 'no-such-command'" in errors
    status, _, errors = finish(*base, "--wdir=/nonexistent", "true")
    assert status == 1
    assert f"{HOSTS[1]}: there is no folder /nonexistent" in errors


def test_login_script_that_prints_does_no_harm(server, tmp_path):
    noisy = tmp_path / "python"
    noisy.write_text(
        f'#!/bin/sh\necho Welcome\necho "{{\\"event\\": 1}}"\nexec {sys.executable} "$@"\n'
    )
    noisy.chmod(0o755)
    options = [*server.options, "--remote-python", str(noisy), NO_AGGREGATOR]
    status, output, _ = finish("-H", HOSTS[0], *options, *worker("print('hello')"))
    assert (status, output) == (0, "[0] hello\n")
