"""tl-aggregator as its users meet it: flags, errors, logs, signals, snapshots."""

import json
import re
import socket
import subprocess
from pathlib import Path

import pytest
from cluster.wait import until
from integration.processes import Aggregator, Load, command_of, environment_with, run

MODEL = ["--layout=kernel:64x64,bias:64", "--workers=2", "--step=0"]
EXCHANGES = [*MODEL, "--steps=10", "--period=1", "--check"]
SECRET = "correct horse battery staple"


@pytest.fixture
def secret_file(tmp_path) -> Path:
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_text(SECRET + "\n")
    return path


def test_it_ends_with_whoever_started_it_after_a_last_snapshot(tmp_path):
    command = command_of(
        "tl-aggregator", "--listen=127.0.0.1:0", "--until-stdin-ends", f"--snapshot-dir={tmp_path}"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment_with(), **pipes) as started:
        where = started.stdout.readline().split()[2]
        ran = run("tl-load", f"--aggregator={where}", *EXCHANGES)
        assert ran.returncode == 0, ran.stderr
        assert started.poll() is None
        started.stdin.close()
        assert started.wait(20) == 0
    assert list(tmp_path.glob("snapshot-*.tls"))


def refusal(*flags: str, **variables: str) -> str:
    """What it says when it won't even start, because the command line is wrong."""
    ran = run("tl-aggregator", *flags, **variables)
    assert ran.returncode == 2, ran.stderr
    assert ran.stdout == ""
    assert ran.stderr.startswith("tl-aggregator: ")
    assert ran.stderr.count("\n") == 1, "one sentence is enough"
    return ran.stderr


# ---- The command line. --------------------------------------------------------------------------


def test_help_names_every_flag_and_fits_a_terminal():
    ran = run("tl-aggregator", "--help")
    assert ran.returncode == 0
    assert ran.stderr == ""
    for flag in ("listen", "secret-file", "snapshot-dir", "part", "lease", "config"):
        assert f"--{flag}=" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 80


def test_unknown_flag_is_refused_with_the_one_that_was_meant():
    said = refusal("--snapshot-dri=/tmp")
    assert "--snapshot-dri" in said
    assert "--snapshot-dir" in said


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--listen=:7070", "host"),
        ("--listen=127.0.0.1:99999", "port"),
        ("--part=3/3", "K/N"),
        ("--part=one", "K/N"),
        ("--threads=0", "from 1 to 256"),
        ("--threads=many", "no whole number"),
        ("--lease=0", "1 ms"),
        ("--lease=soon", "no duration"),
        ("--rule=sometimes", "average"),
        ("--max-workers=-1", "from 1"),
        ("--tls-key=/nowhere", "--tls-certificate"),
        ("--job=" + "x" * 65, "64"),
        ("stray", "stray"),
    ],
)
def test_bad_value_is_refused_in_a_sentence_that_names_it(flag, reason):
    said = refusal(flag)
    assert reason in said
    assert flag.split("=")[0] in said


def test_config_file_gives_flags_and_the_command_line_wins(tmp_path):
    config = tmp_path / "aggregator.conf"
    config.write_text("job = from-the-file  # a comment\nlog = json\nlog-level = info\n")
    with Aggregator(f"--config={config}") as aggregator:
        assert "job from-the-file" in aggregator.output()
    with Aggregator(f"--config={config}", "--job=from-the-line") as aggregator:
        assert "job from-the-line" in aggregator.output()


def test_mistake_in_a_config_file_is_blamed_by_path_and_line(tmp_path):
    config = tmp_path / "aggregator.conf"
    config.write_text("job = x\n\nlese = 3s\n")
    said = refusal(f"--config={config}")
    assert f"{config}:3" in said
    assert "lease" in said


# ---- Who may connect. ---------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["0.0.0.0:0", "[::]:0"])
def test_listening_beyond_loopback_needs_a_secret_or_a_clear_word(place, secret_file):
    ran = run("tl-aggregator", f"--listen={place}")
    assert ran.returncode != 0
    assert "secret" in ran.stderr
    assert "listening" not in ran.stdout
    with Aggregator("--open-to-anybody", listen=place) as aggregator:
        assert "without a secret" in aggregator.output()
    with Aggregator(f"--secret-file={secret_file}", listen=place) as aggregator:
        assert "without a secret" not in aggregator.output()


def test_secret_shows_neither_in_the_log_nor_in_the_command_line(secret_file):
    flags = [f"--secret-file={secret_file}", "--log-level=debug"]
    with Aggregator(*flags) as aggregator, Aggregator("--log-level=debug", TL_SECRET=SECRET) as too:
        for each in (aggregator, too):
            Load(each, *EXCHANGES, f"--secret-file={secret_file}").finish()
            stranger = Load(each, *EXCHANGES, TL_SECRET="some other secret, long enough")
            assert stranger.wait() == 1
            seen = each.log() + each.output() + stranger.log()
            assert "secret" in seen, "the refusal should be there"
            seen += Path(f"/proc/{each.pid}/cmdline").read_text()
            assert SECRET not in seen
            assert SECRET.encode().hex() not in seen
            assert "some other secret" not in seen


def test_secret_that_others_can_read_is_refused(secret_file):
    secret_file.chmod(0o644)
    ran = run("tl-aggregator", f"--secret-file={secret_file}")
    assert ran.returncode != 0
    assert "chmod 600" in ran.stderr


# ---- Where it listens. --------------------------------------------------------------------------


def test_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = run("tl-aggregator", f"--listen={place}")
    assert ran.returncode == 1
    assert place in ran.stderr
    assert "in use" in ran.stderr


def test_unix_socket_and_ipv6_serve_as_well_as_ipv4(tmp_path):
    places = ["127.0.0.1:0", "[::1]:0", f"unix:{tmp_path}/tl.sock"]
    with Aggregator(listen=places) as aggregator:
        for endpoint in aggregator.endpoints:
            report = Load(endpoint, *EXCHANGES).finish()
            assert report["exchanges"] == 20
            assert report["views_agree"] is True
        assert report["aggregator"]["connections"] == 6, "all came to the same aggregator"
        assert aggregator.stop() == 0
    assert not (tmp_path / "tl.sock").exists(), "a socket was left behind"


def test_socket_that_a_killed_one_left_behind_is_no_obstacle(tmp_path):
    place = f"unix:{tmp_path}/tl.sock"
    with Aggregator(listen=place) as aggregator:
        aggregator.kill()
    assert (tmp_path / "tl.sock").exists()
    with Aggregator(listen=place) as aggregator:
        Load(aggregator, *EXCHANGES).finish()


# ---- What it tells. -----------------------------------------------------------------------------


def test_every_line_of_a_json_log_is_an_event():
    with Aggregator("--log=json", "--log-level=debug") as aggregator:
        Load(aggregator, *EXCHANGES).finish()
        assert aggregator.stop() == 0
        events = [json.loads(line) for line in aggregator.log().splitlines()]
    assert all({"time", "level", "event"} <= event.keys() for event in events)
    assert all(re.match(r"\d{4}-\d\d-\d\dT", event["time"]) for event in events)
    assert {"model", "joined", "disconnected"} <= {event["event"] for event in events}
    assert sorted(e["rank"] for e in events if e["event"] == "joined") == [0, 1]


def test_log_level_leaves_out_what_is_less():
    with Aggregator("--log-level=warning") as aggregator:
        Load(aggregator, *EXCHANGES).finish()
        assert aggregator.stop() == 0
        assert " info " not in aggregator.log()


# ---- How it ends, and begins again. -------------------------------------------------------------


@pytest.fixture
def centre(tmp_path):
    """Gives the bits of the centre, asked for by a worker that brings nothing."""

    def reader(aggregator: Aggregator) -> bytes:
        path = tmp_path / "centre"
        flags = [*MODEL, "--steps=1", "--period=1000", f"--centre-out={path}"]
        report = Load(aggregator, *flags).finish()
        assert report["exchanges"] == 0
        return path.read_bytes()

    return reader


def test_sigterm_writes_a_snapshot_and_a_new_one_goes_on_from_it(tmp_path, centre):
    snapshots = tmp_path / "snapshots"
    flags = [f"--snapshot-dir={snapshots}", "--snapshot-every=1h"]
    with Aggregator(*flags) as first:
        Load(first, *EXCHANGES).finish()
        before = centre(first)
        earlier = set(snapshots.glob("*"))
        assert first.stop() == 0
    assert set(snapshots.glob("*")) - earlier, "an hour has not passed, but the end has come"
    with Aggregator(*flags) as second:
        assert centre(second) == before
        Load(second, *EXCHANGES).finish()
        assert centre(second) != before
    with Aggregator() as without:
        assert centre(without) != before


def test_snapshots_are_written_while_it_runs(tmp_path, centre):
    flags = [f"--snapshot-dir={tmp_path / 'snapshots'}", "--snapshot-every=100ms"]
    with Aggregator(*flags) as first:
        Load(first, *EXCHANGES).finish()
        before = centre(first)
        report = Load(first, *MODEL, "--steps=1", "--period=1000").finish()
        taken = report["aggregator"]["snapshots"]

        def one_more() -> bool:
            again = Load(first, *MODEL, "--steps=1", "--period=1000").finish()
            return again["aggregator"]["snapshots"] > taken + 1

        # The first of two may have begun before the last push; the second has all of them.
        assert until(one_more)
        first.kill()
    with Aggregator(*flags) as second:
        assert centre(second) == before


def test_snapshots_of_another_model_are_not_gone_on_from(tmp_path):
    flags = [f"--snapshot-dir={tmp_path / 'snapshots'}"]
    with Aggregator(*flags) as first:
        Load(first, *EXCHANGES).finish()
        assert first.stop() == 0
    with Aggregator(*flags) as second:
        other = Load(second, *EXCHANGES, "--layout=kernel:64x32,bias:64")
        assert other.wait() == 1
        assert "kernel" in other.log(), "it should say in what the models differ"


def test_folder_that_is_none_is_named(tmp_path):
    (tmp_path / "file").touch()
    ran = run("tl-aggregator", "--listen=127.0.0.1:0", f"--snapshot-dir={tmp_path / 'file'}")
    assert ran.returncode != 0
    assert str(tmp_path / "file") in ran.stderr
