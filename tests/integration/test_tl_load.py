"""tl-load against real aggregators: every policy, several processes, faults, secrets and TLS."""

import json
import os
import pty
import subprocess
import termios
from pathlib import Path

import numpy as np
import pytest
from cluster.wait import until
from integration.ledger import decode, read_ledger
from integration.processes import Aggregator, Load, command_of, run

SMALL = ["--layout=kernel:64x64,bias:64", "--step=0", "--period=1"]
POLICIES = ["elastic", "local", "dense", "gradient", "gradient-async"]
GRADIENTS = POLICIES[-2:]
# Pushes travel as they are, and are exact in any order.
EXACT = [*SMALL, "--policy=gradient-async", "--exact", "--bits=32"]


@pytest.fixture
def aggregator():
    with Aggregator() as running:
        yield running


# ---- A run. -------------------------------------------------------------------------------------


def test_four_workers_agree_with_the_aggregator_on_what_happened(aggregator):
    flags = ["--workers=4", "--layout=300k", "--steps=60", "--step=2ms", "--period=10"]
    report = Load(aggregator, *flags, "--check").finish()
    assert report["views_agree"] is True
    assert report["failures"] == []
    assert report["steps"] == 4 * 60
    assert report["exchanges"] + report["backed_off"] >= 4
    there = report["aggregator"]
    assert there["pushes"] == report["pushes"] == report["exchanges"] * report["shards"]
    assert there["entries_in"] == report["entries_sent"]
    assert there["entries_out"] == report["entries_received"]
    assert report["reconnects"] == report["resyncs"] == report["owed_again"] == 0
    assert 0.01 <= report["density_sent"] < 0.03
    assert 0.01 <= report["density_received"] < 0.05
    assert report["fewer_than_dense"] > 20
    assert report["latency_p50_us"] <= report["latency_p99_us"]
    assert report["seconds"] > 0


def test_report_has_every_number_of_the_table(aggregator):
    ran = Load(aggregator, *SMALL, "--steps=5", "--check")
    report = ran.finish()
    assert report.keys() >= {
        *("workers", "policy", "entries", "shards", "seconds", "interrupted", "steps"),
        *("steps_per_s", "exchanges", "exchanges_per_s", "pushes", "bytes_sent"),
        *("bytes_received", "bytes_joining", "dense_bytes", "fewer_than_dense", "density_sent"),
        *("density_received", "staleness_mean", "steps_behind_mean", "latency_p50_us"),
        *("latency_p99_us", "latency_max_us", "backed_off", "reconnects", "resyncs"),
        *("owed_again", "refused", "cuts", "crashes", "drained", "views_agree", "failures"),
        "aggregator",
    }
    assert report["exchanges"] == 4 * 5
    # With --json=-, which finish() reads, people find the table on stderr.
    for row in ("exchanges", "fewer than dense", "latency p99", "staleness", "views agree"):
        assert row in ran.log()


def test_json_goes_to_a_file_and_the_table_to_stdout(aggregator, tmp_path):
    path = tmp_path / "report.json"
    where = [f"--aggregator={aggregator.endpoint}", f"--json={path}"]
    ran = run("tl-load", *where, *SMALL, "--steps=5")
    assert ran.returncode == 0, ran.stderr
    assert "fewer than dense" in ran.stdout
    assert json.loads(path.read_text())["steps"] == 20


def test_live_line_stays_one_line_on_a_terminal(aggregator):
    columns = 50
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    where = [f"--aggregator={aggregator.endpoint}", "--duration=1700ms"]
    command = command_of("tl-load", *where, *SMALL)
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert ran.returncode == 0
    updates = [line for line in shown.split("\r") if " s running" in line]
    assert len(updates) >= 2
    assert all(len(line.removesuffix("\x1b[K").strip()) < columns for line in updates)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_runs_and_agrees(aggregator, policy):
    flags = [*SMALL, f"--policy={policy}", "--workers=3", "--steps=20", "--check"]
    report = Load(aggregator, *flags).finish()
    assert report["policy"] == policy
    assert report["views_agree"] is True
    assert report["exchanges"] >= 3 * 20
    assert report["aggregator"]["rule"] == {
        "gradient": "gradient-sync",
        "gradient-async": "gradient-async",
    }.get(policy, "average")
    if policy == "dense":
        assert report["density_sent"] > 0.9
        assert report["fewer_than_dense"] < 1.1


def test_adaptive_schedule_exchanges_when_the_model_has_moved(aggregator):
    flags = ["--layout=64k", "--step=0", "--steps=64", "--period=2", "--workers=2"]
    rarely = Load(aggregator, *flags, "--adaptive=100").finish()
    often = Load(aggregator, *flags, "--adaptive=0.000001").finish()
    assert rarely["exchanges"] == 2 * 64 / (16 * 2)
    assert often["exchanges"] == 2 * 64 / 2


def test_model_spread_over_three_processes_is_one_model(tmp_path):
    parts = [Aggregator(f"--part={k}/3") for k in range(3)]
    path = tmp_path / "centre"
    flags = ["--layout=1M", "--workers=3", "--steps=10", "--step=0", "--period=1", "--check"]
    report = Load(parts, *flags, f"--centre-out={path}").finish()
    assert report["views_agree"] is True
    assert 0 < report["aggregator"]["pushes"] < report["pushes"], "the first has only a part"
    assert path.stat().st_size == 4 * 1_000_000
    missing = Load(parts[:2], *flags)
    assert missing.wait() == 1
    assert "served by none" in missing.log()


def test_ranks_are_given_or_chosen(aggregator):
    given = Load(aggregator, *SMALL, "--workers=2", "--steps=5").finish()
    chosen = Load(aggregator, *SMALL, "--workers=2", "--steps=5", "--rank-base=40").finish()
    assert sorted(worker["rank"] for worker in given["aggregator"]["workers"]) == [0, 1]
    assert sorted(worker["rank"] for worker in chosen["aggregator"]["workers"]) == [0, 1, 40, 41]


def test_later_attempt_takes_over_and_the_earlier_one_fails(aggregator):
    who = [*SMALL, "--workers=1", "--rank-base=0"]
    earlier = Load(aggregator, *who, "--attempt=1", "--duration=1h")
    assert until(earlier.has_joined)
    Load(aggregator, *who, "--attempt=2", "--steps=5").finish()
    assert earlier.wait() == 1
    assert "taken over" in earlier.log()
    assert "taken over" in earlier.report()["failures"][0]


# ---- What it leaves. ----------------------------------------------------------------------------


def test_centre_is_the_exact_sum_of_all_pushes_in_the_ledger(aggregator, tmp_path):
    ledger, centre = tmp_path / "ledger", tmp_path / "centre"
    flags = [*EXACT, "--workers=3", "--steps=20", "--density=0.1"]
    Load(aggregator, *flags, f"--ledger={ledger}", f"--centre-out={centre}").finish()
    pushes = list(read_ledger(ledger))
    assert {(push.rank, push.shard) for push in pushes} == {
        (r, s) for r in range(3) for s in (0, 1)
    }
    for rank in range(3):
        of_kernel = [p.sequence for p in pushes if (p.rank, p.shard) == (rank, 0)]
        assert of_kernel == list(range(1, 21))
    sums = [np.zeros(64 * 64, np.float32), np.zeros(64, np.float32)]
    for push in pushes:
        sums[push.shard] += decode(push.code, len(sums[push.shard]))
    written = np.fromfile(centre, "<f4")
    assert np.count_nonzero(written) > 0
    assert np.array_equal(written, np.concatenate(sums))


@pytest.mark.parametrize("policy", GRADIENTS)
def test_drained_workers_have_brought_everything_however_sparse_their_pushes(policy, tmp_path):
    centres = []
    for number, density in enumerate(("1", "0.05")):
        path = tmp_path / f"centre{number}"
        flags = [*EXACT, f"--policy={policy}", f"--density={density}", "--steps=20", "--workers=3"]
        with Aggregator() as aggregator:
            report = Load(aggregator, *flags, "--drain", f"--centre-out={path}").finish()
        assert report["drained"] is True
        centres.append(path.read_bytes())
    assert any(centres[0])
    assert centres[0] == centres[1]


def test_sigterm_ends_the_run_early_with_table_and_check(aggregator):
    load = Load(aggregator, *SMALL, "--duration=1h", "--check")
    assert until(load.has_joined)
    report = load.stop()
    assert report["interrupted"] is True
    assert report["views_agree"] is True
    assert "ended early" in load.log()


# ---- Faults. ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["elastic", *GRADIENTS])
def test_workers_that_are_cut_off_and_crash_agree_in_the_end(aggregator, policy):
    flags = [f"--policy={policy}", "--layout=100k", "--step=1ms", "--period=2", "--steps=150"]
    report = Load(aggregator, *flags, "--fault-rate=0.03", "--check").finish()
    assert report["views_agree"] is True
    assert report["steps"] == 4 * 150
    assert report["cuts"] > 0
    assert report["crashes"] > 0
    assert report["reconnects"] > 0
    assert report["aggregator"]["connections"] >= 4 + report["crashes"]
    assert report["aggregator"]["live"] <= 4, "a crashed one is taken over, not waited for"


@pytest.mark.parametrize("policy", ["elastic", *GRADIENTS])
def test_worker_without_an_aggregator_gives_up_and_says_so(policy):
    with Aggregator() as aggregator:
        flags = [*SMALL, f"--policy={policy}", "--duration=1h", "--give-up=1s", "--patience=5s"]
        load = Load(aggregator, *flags)
        assert until(load.has_joined)
        aggregator.kill()
        # All workers have failed: an hour need not pass.
        assert load.wait() == 1
        report = load.report()
    assert any(f"no aggregator at {aggregator.endpoint}" in said for said in report["failures"])
    assert report["aggregator"] is None


def test_file_that_cannot_be_written_is_named_before_the_run(aggregator, tmp_path):
    for flag in ("json", "centre-out", "ledger"):
        path = tmp_path / "no such folder" / "file"
        where = [f"--aggregator={aggregator.endpoint}", f"--{flag}={path}"]
        ran = run("tl-load", *where, *SMALL, "--steps=5")
        assert ran.returncode == 1
        assert str(path) in ran.stderr
    assert "joined" not in aggregator.log()


def test_missing_aggregator_is_named_once_patience_is_over():
    load = Load("127.0.0.1:1", *SMALL, "--patience=1s")
    assert load.wait(30) == 1
    assert "127.0.0.1:1" in load.log()
    assert "refused" in load.log()
    assert load.output() == ""


# ---- Secrets and TLS. ---------------------------------------------------------------------------


def test_wrong_secret_is_refused_at_once(tmp_path):
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    for path in (right, wrong):
        path.touch(0o600)
        path.write_text(f"the {path.name} secret, long enough")
    with Aggregator(f"--secret-file={right}") as aggregator:
        for flags in ([f"--secret-file={wrong}"], []):
            load = Load(aggregator, *SMALL, "--steps=5", *flags)
            assert load.wait() == 1
            assert "secret" in load.log()
        Load(aggregator, *SMALL, "--steps=5", f"--secret-file={right}").finish()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed one for 127.0.0.1, which is its own authority, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    ask = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    ask += ["-nodes", "-subj", "/CN=aggregator", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*ask, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_over_tls_all_is_the_same(certificate):
    of, key = certificate
    with Aggregator(f"--tls-certificate={of}", f"--tls-key={key}") as aggregator:
        flags = ["--layout=300k", "--steps=20", "--step=1ms", "--period=2", "--check"]
        report = Load(aggregator, *flags, f"--tls-ca={of}").finish()
        assert report["views_agree"] is True
        assert report["reconnects"] == 0
        plain = Load(aggregator, *flags, "--patience=2s")
        assert plain.wait() == 1
        assert plain.log() != ""


def test_certificate_of_an_unknown_authority_is_refused(certificate, tmp_path):
    (of, key), (other, _) = certificate, make_certificate(tmp_path)
    with Aggregator(f"--tls-certificate={of}", f"--tls-key={key}") as aggregator:
        load = Load(aggregator, *SMALL, "--steps=5", f"--tls-ca={other}")
        assert load.wait() == 1
        assert "certificate" in load.log()


# ---- The command line. --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ([], "TL_AGGREGATOR"),
        (["--aggregator=:1"], "--aggregator"),
        (["--aggregator=h:1", "--workers=0"], "--workers=0 is not from 1"),
        (["--aggregator=h:1", "--layout=kernel:64y64"], "AxB"),
        (["--aggregator=h:1", "--layout=64Q"], "NAME:AxB"),
        (["--aggregator=h:1", "--layout=a:1,a:2"], "'a'"),
        (["--aggregator=h:1", "--bits=3"], "none of 32, 16, 8, 4, 2"),
        (["--aggregator=h:1", "--density=1.5"], "--density"),
        (["--aggregator=h:1", "--policy=dense", "--bits=4"], "--policy=dense"),
        (["--aggregator=h:1", "--drain"], "gradient"),
        (["--aggregator=h:1", "--fault-rate=-1"], "--fault-rate"),
        (["--aggregator=h:1", "--wrokers=3"], "--workers"),
    ],
)
def test_bad_flags_end_with_2_and_a_sentence(flags, reason):
    ran = run("tl-load", *flags)
    assert ran.returncode == 2, ran.stderr
    assert reason in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_aggregator_and_job_come_from_the_environment(aggregator):
    variables = {"TL_AGGREGATOR": aggregator.endpoint, "TL_JOB": "of-the-environment"}
    ran = run("tl-load", *SMALL, "--steps=5", "--json=-", **variables)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["aggregator"]["job"] == "of-the-environment"


def test_help_fits_a_terminal():
    ran = run("tl-load", "--help")
    assert ran.returncode == 0
    assert max(map(len, ran.stdout.splitlines())) <= 80
