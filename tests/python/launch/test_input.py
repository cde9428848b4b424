"""What a person may get wrong on the command line, and the sentence that says so."""

import shutil

import pytest
from python.launch.runs import NO_AGGREGATOR, ROOT, finish
from tensorlightning.launch import main as program


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-np", "2"], "what is to be run? As in: tlrun -np 4 python train.py"),
        (["-np", "0", "true"], "'0' is no number of processes from 1 on"),
        (["-np", "-3", "true"], "'-3' is no number of processes"),
        (["-np", "many", "true"], "'many' is no number of processes from 1 on"),
        (["-np", "5", "-H", "a:2,b:2", "true"], "-np 5, but a:2,b:2 has 4 slots; say how many"),
        (["-H", "a:b", "true"], "-H: 'a:b' is no host; wanted is host or host:slots"),
        (["-H", "a,,b", "true"], "-H: '' is no host"),
        (["-H", "a:0", "true"], "'a:0': a host has 1 to 4096 slots"),
        (["-H", "-oProxyCommand=evil", "true"], "expected one argument"),
        (["-H=-oProxyCommand=evil", "true"], "is no host"),
        (["-H", "a", "--hostfile", "b", "true"], "-H and --hostfile: which of them?"),
        (["--hostfile", "/nonexistent/hosts", "true"], "No such file or directory"),
        (
            ["--aggregator", "far", "true"],
            "--aggregator=far: wanted is beside, embedded, HOST:PORT",
        ),
        (["--aggregator=a:1", "--snapshot-dir=x", "true"], "don't go with --aggregator=a:1"),
        (["--env", "1X=2", "true"], "--env 1X=2: wanted is NAME=VALUE"),
        (["--env", "NO_SUCH_VARIABLE", "true"], "there is no such variable here to pass on"),
        (["--env", "TL_SECRET=hush", "true"], "--env TL_SECRET: see --secret-file"),
        (["--env", "TL_RANK=3", "true"], "--env TL_RANK: tlrun sets it itself"),
        (["--secret-file", "/nonexistent/secret", "true"], "--secret-file /nonexistent/secret:"),
        (["--grace", "nan", "true"], "'nan' is no number of seconds"),
        (["--max-restarts", "-1", "true"], "'-1' is no number from 0 on"),
        (["--ssh-port", "65536", "true"], "'65536' is no port"),
        (["--no-such-option", "true"], "--no-such-option"),
        (["--output-dir", "/proc/x", "true"], "--output-dir /proc/x:"),
    ],
)
def test_mistake_is_explained(arguments, complaint, capsys):
    try:
        status = program.main(arguments)
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr().err
    assert status == 2
    assert said.startswith("tlrun: ")
    assert complaint in said
    assert "hush" not in said


def test_help_has_examples_and_fits_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        program.main(["--help"])
    said = capsys.readouterr().out
    assert end.value.code == 0
    for word in ("tlrun -np 4 python train.py", "-H host1:4,host2:4", "--max-restarts", "{rank}"):
        assert word in said
    assert max(map(len, said.splitlines())) <= 80


def test_unknown_command_is_named_and_gives_127():
    status, _, errors = finish("-np", "2", NO_AGGREGATOR, "no-such-command")
    assert status == 127
    assert "there is no command 'no-such-command'" in errors
    assert "Traceback" not in errors


def test_file_that_is_no_program_is_named(tmp_path):
    script = tmp_path / "script"
    script.write_text("no interpreter, and nobody may run it")
    status, _, errors = finish("-np", "1", NO_AGGREGATOR, str(script))
    assert status == 127
    assert f"there is no command '{script}'" in errors


def test_program_that_the_kernel_refuses_is_named(tmp_path):
    script = tmp_path / "script"
    script.write_bytes(b"\x7fELF but not quite")
    script.chmod(0o755)
    status, _, errors = finish("-np", "1", NO_AGGREGATOR, str(script))
    assert status == 127
    assert "Exec format error" in errors


def test_missing_aggregator_is_explained(tmp_path):
    clone = tmp_path / "clone/python"
    shutil.copytree(ROOT / "python/tensorlightning/launch", clone / "tensorlightning/launch")
    shutil.copy(ROOT / "python/tensorlightning/_files.py", clone / "tensorlightning")
    variables = {"TL_PROGRAMS": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(clone)}
    status, _, errors = finish("-np", "1", "true", **variables)
    assert status == 1
    assert f"tl-aggregator is neither in {tmp_path} nor in {clone}/tensorlightning/bin" in errors
    assert "`make tools` builds it" in errors


def test_aggregator_that_does_not_start_is_explained(tmp_path):
    broken = tmp_path / "tl-aggregator"
    broken.write_text("#!/bin/sh\necho no port >&2\nexit 3\n")
    broken.chmod(0o755)
    status, _, errors = finish("-np", "1", "true", TL_PROGRAMS=str(tmp_path))
    assert status == 1
    assert "[aggregator] no port" in errors
    assert "the aggregator ended with exit status 3 before it listened" in errors


def test_aggregator_that_never_listens_is_given_up(tmp_path):
    silent = tmp_path / "tl-aggregator"
    silent.write_text("#!/bin/sh\nexec sleep 600\n")
    silent.chmod(0o755)
    status, _, errors = finish("-np", "1", "--start-timeout=2", "true", TL_PROGRAMS=str(tmp_path))
    assert status == 1
    assert "the aggregator does not listen (see --start-timeout)" in errors


def test_options_of_the_aggregator_are_passed_to_it(tmp_path):
    fake = tmp_path / "tl-aggregator"
    fake.write_text('#!/bin/sh\necho "$@" >&2\necho listening on 127.0.0.1:9\nexec sleep 600\n')
    fake.chmod(0o755)
    extra = ["--aggregator-option", "lease=5s", f"--snapshot-dir={tmp_path}", "--job=mine"]
    status, _, errors = finish("-np", "1", *extra, "true", TL_PROGRAMS=str(tmp_path))
    assert status == 0
    assert "[aggregator] --listen=127.0.0.1:0 --job=mine" in errors
    assert f"--lease=5s --snapshot-dir={tmp_path}\n" in errors


def test_command_after_dashes_and_its_own_options_are_left_alone():
    status, output, _ = finish("-np", "1", NO_AGGREGATOR, "--", "echo", "-np", "7", "--help")
    assert (status, output) == (0, "[0] -np 7 --help\n")
