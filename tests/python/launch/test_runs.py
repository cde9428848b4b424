"""tlrun on this machine: who is told what."""

import json
import re
import subprocess
import sys

import pytest
from cluster.wait import until
from python.launch.runs import NO_AGGREGATOR, Run, environment_with, finish, worker


def test_each_rank_knows_who_it_is_and_where_the_aggregator_is():
    code = "print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('TL_')}))"
    status, output, _ = finish("-np", "3", NO_AGGREGATOR, "--job", "mine", *worker(code))
    assert status == 0
    told = [json.loads(line.split(" ", 1)[1]) for line in sorted(output.splitlines())]
    assert [t["TL_RANK"] for t in told] == [t["TL_LOCAL_RANK"] for t in told] == ["0", "1", "2"]
    assert {t["TL_SIZE"] for t in told} == {t["TL_LOCAL_SIZE"] for t in told} == {"3"}
    assert {t["TL_AGGREGATOR"] for t in told} == {"127.0.0.1:9"}
    assert {t["TL_JOB"] for t in told} == {"mine"}
    assert all(int(t["TL_ATTEMPT"]) > 0 for t in told)
    assert all("TL_EMBED" not in t for t in told)


def test_settings_become_variables_and_env_adds_others():
    code = "print(*(os.environ.get(n) for n in ('TL_POLICY', 'TL_REPLY_DENSITY', 'A', 'B')))"
    settings = ["--policy", "local", "--reply-density=0.03", "--env", "A=x=y", "-x", "B"]
    status, output, _ = finish("-np", "1", NO_AGGREGATOR, *settings, *worker(code), B="passed on")
    assert (status, output) == (0, "[0] local 0.03 x=y passed on\n")


def test_variables_of_another_job_are_not_passed_on():
    code = "print(*(os.environ.get(n) for n in ('TL_RANK', 'TL_EMBED', 'TL_SECRET_FILE')))"
    status, output, _ = finish(
        "-np", "1", "--aggregator=embedded", *worker(code), TL_RANK="7", TL_SECRET_FILE="x"
    )
    assert status == 0
    assert re.fullmatch(r"\[0\] 0 127\.0\.0\.1:\d+ None\n", output)


def test_embedded_aggregator_is_rank_0s_and_everybody_is_told_where_it_is():
    code = "print(os.environ['TL_AGGREGATOR'], os.environ.get('TL_EMBED'))"
    status, output, _ = finish("-np", "2", "--aggregator=embedded", *worker(code))
    assert status == 0
    first, second = (line.split()[1:] for line in sorted(output.splitlines()))
    assert first[0] == first[1] == second[0]
    assert second[1] == "None"


def test_aggregator_beside_rank_0_listens_with_a_fresh_secret(programs):
    code = """
import socket
host, port = os.environ["TL_AGGREGATOR"].rsplit(":", 1)
socket.create_connection((host, int(port)), 10).close()
print(os.environ["TL_SECRET"])
"""
    secrets = []
    for _ in range(2):
        status, output, errors = finish("-np", "2", *worker(code), TL_PROGRAMS=programs)
        assert status == 0, errors
        words = {line.split()[1] for line in output.splitlines()}
        assert len(words) == 1 and len(min(words)) >= 32
        secrets += words
    assert secrets[0] != secrets[1]


def test_secret_is_on_no_command_line(programs):
    code = "say(os.environ['TL_SECRET']); time.sleep(60)"
    with Run("-np", "2", *worker(code), TL_PROGRAMS=programs) as run:
        assert until(lambda: run.output().count("\n") == 2)
        secret = run.output().split()[1]
        commands = list(run.living().values())
        assert any("tl-aggregator" in command for command in commands)
        assert sum("tensorlightning.launch" in command for command in commands) == 2
        assert not any(secret in command for command in commands)


def test_placeholders_are_filled_in_and_others_left_alone():
    code = "print(sys.argv[1:])"
    given = ["run_{rank}_of_{size}", "{local_rank}", "{{rank}}", '{"json": {}}', "{x}"]
    status, output, _ = finish("-np", "2", NO_AGGREGATOR, *worker(code, *given))
    assert status == 0
    wanted = ["run_1_of_2", "1", "{rank}", '{"json": {}}', "{x}"]
    assert f"[1] {wanted}\n" in output


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [("agent", {"tensorflow", "numpy", "rich", "asyncio"}), ("main", {"tensorflow", "numpy"})],
)
def test_little_is_imported(module, unwanted):
    code = f"import sys, tensorlightning.launch.{module}; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment_with(), capture_output=True, text=True)
    assert done.returncode == 0
    assert not unwanted & set(done.stdout.split())
