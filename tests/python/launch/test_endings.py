"""How runs end: by failures, restarts, signals and worse, and that nobody is left behind."""

import os
import re
import signal
import sys

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


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(3 if rank == 1 else 0)", 3),
        ("os.kill(os.getpid(), 9 if rank == 1 else 0)", 128 + 9),
    ],
)
def test_exit_status_is_that_of_the_one_that_failed(code, status):
    assert finish("-np", "3", NO_AGGREGATOR, *worker(code))[0] == status


def test_exit_status_is_that_of_the_worst(tmp_path):
    with Run("-np", "3", NO_AGGREGATOR, *worker(WAIT + "sys.exit(20 - rank)", tmp_path)) as run:
        assert all_ready(run, 3)
        agent = agent_of(run)
        # It sees all of them end at once.
        os.kill(agent, signal.SIGSTOP)
        (tmp_path / "go").touch()
        assert until(lambda: not workers_of(run))
        os.kill(agent, signal.SIGCONT)
        assert run.wait() == 20


def test_one_that_fails_ends_the_others():
    code = f"{DAEMON}\nif rank == 2: sys.exit(4)\n{SLEEP}"
    status, _, errors = finish("-np", "3", NO_AGGREGATOR, *worker(code))
    assert status == 4
    assert "tlrun: worker 2 on localhost ended with exit status 4; stopping all workers" in errors
    assert re.search(r"^ +0 +localhost.* 143 \(stopped\)$", errors, re.MULTILINE)
    assert re.search(r"^ +2 +localhost.* 4 \(failed\)$", errors, re.MULTILINE)


def test_one_that_ends_well_leaves_the_others_alone(tmp_path):
    code = "if rank == 0: sys.exit(0)\n" + WAIT
    with Run("-np", "2", NO_AGGREGATOR, *worker(code, tmp_path)) as run:
        assert all_ready(run, 1)
        assert until(lambda: len(workers_of(run)) == 1)
        (tmp_path / "go").touch()
        assert run.wait() == 0


def test_worker_that_ignores_sigterm_is_killed():
    code = f"{STUBBORN}\nif rank == 1: time.sleep(0.5); sys.exit(6)\n{SLEEP}"
    status, _, errors = finish("-np", "2", NO_AGGREGATOR, "--grace=0.5", *worker(code))
    assert status == 6
    assert re.search(r"^ +0 +localhost.* 137 \(stopped\)$", errors, re.MULTILINE)


def test_worker_may_clean_up_when_it_is_stopped(tmp_path):
    code = f"""
def clean_up(*_):
    open(sys.argv[1] + "/" + str(rank), "w").close()
    sys.exit(1)
signal.signal(signal.SIGTERM, clean_up)
if rank == 1:
    while not os.path.exists(sys.argv[1] + "/ready"): time.sleep(0.02)
    os._exit(2)
open(sys.argv[1] + "/ready", "w").close()
{SLEEP}
"""
    assert finish("-np", "2", NO_AGGREGATOR, *worker(code, str(tmp_path)))[0] == 2
    assert (tmp_path / "0").exists()


def test_stopped_worker_can_obey_sigterm():
    code = f"\nif rank == 0: say('ready'); os.kill(os.getpid(), signal.SIGSTOP)\n{SLEEP}"
    with Run("-np", "2", NO_AGGREGATOR, *worker(code)) as run:
        assert all_ready(run, 2)
        run.signal(signal.SIGTERM)
        assert run.wait() == 128 + signal.SIGTERM
        assert run.leaves_nothing()
        assert run.errors().count("143 (stopped)") == 2


def test_restarted_worker_keeps_its_rank_and_gets_a_higher_attempt(tmp_path):
    code = """
say("attempt", os.environ["TL_ATTEMPT"])
seen = sys.argv[1] + str(rank)
times = len(open(seen).read()) if os.path.exists(seen) else 0
open(seen, "a").write("x")
sys.exit(9 if rank == 1 and times < 2 else 0)
"""
    status, output, errors = finish(
        "-np", "2", NO_AGGREGATOR, "--max-restarts=2", *worker(code, f"{tmp_path}/")
    )
    assert status == 0
    attempts = [int(a) for a in re.findall(r"^\[1\] attempt (\d+)$", output, re.MULTILINE)]
    assert len(attempts) == 3
    assert attempts == sorted(set(attempts))
    assert output.count("[0] attempt") == 1
    assert "it starts again (restart 2 of 2)" in errors


def test_restarts_come_to_an_end():
    code = "say('begin'); sys.exit(8 if rank == 0 else 0)"
    status, output, _ = finish("-np", "2", NO_AGGREGATOR, "--max-restarts=1", *worker(code))
    assert status == 8
    assert output.count("[0] begin") == 2


def test_leftovers_of_a_worker_are_gone_before_it_starts_again(tmp_path):
    code = """
if rank == 0 and os.path.exists(sys.argv[1]):
    helper = int(open(sys.argv[1]).read())
    try:
        os.kill(helper, 0)
    except ProcessLookupError:
        sys.exit(0)
    sys.exit(3)
helper = subprocess.Popen(["sleep", "600"])
open(sys.argv[1], "w").write(str(helper.pid))
sys.exit(1)
"""
    command = worker(code, str(tmp_path / "pid"))
    assert finish("-np", "1", NO_AGGREGATOR, "--max-restarts=1", *command)[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_everything(number, programs):
    with Run("-np", "2", *worker(DAEMON + SLEEP), TL_PROGRAMS=programs) as run:
        assert all_ready(run, 2)
        run.signal(number)
        assert run.wait() == 128 + number
        assert run.leaves_nothing()
        assert f"tlrun: {number.name}: ending all workers" in run.errors()


def test_nohup_is_respected(tmp_path):
    command = ["-np", "1", NO_AGGREGATOR, *worker(WAIT, tmp_path)]
    with Run(*command, ignored=[signal.SIGHUP]) as run:
        assert all_ready(run, 1)
        run.signal(signal.SIGHUP)
        (tmp_path / "go").touch()
        assert run.wait() == 0


def test_ctrl_c_in_a_terminal_ends_everything(programs):
    command = worker(DAEMON + SLEEP)
    with Run("-np", "2", *command, terminal=True, TL_PROGRAMS=programs) as run:
        assert all_ready(run, 2)
        run.type(b"\x03")
        assert run.wait() == 128 + signal.SIGINT
        assert run.leaves_nothing()
        assert "Traceback" not in run.screen()


def test_second_ctrl_c_kills_at_once():
    command = worker(STUBBORN + SLEEP)
    with Run("-np", "2", NO_AGGREGATOR, "--grace=3600", *command, terminal=True) as run:
        assert all_ready(run, 2)
        run.type(b"\x03")
        assert run.says("ending all workers")
        assert len(run.living()) >= 4
        run.type(b"\x03")
        assert run.wait() == 128 + signal.SIGINT
        assert run.leaves_nothing()


def test_terminal_that_is_closed_ends_everything():
    with Run("-np", "2", NO_AGGREGATOR, *worker(DAEMON + SLEEP), terminal=True) as run:
        assert all_ready(run, 2)
        run.hang_up()
        run.wait()
        assert run.leaves_nothing()


@pytest.mark.parametrize("stubborn", ["", STUBBORN])
def test_tlrun_killed_by_kill_9_leaves_no_orphans(stubborn, programs):
    with Run("-np", "2", *worker(stubborn + DAEMON + SLEEP), TL_PROGRAMS=programs) as run:
        assert all_ready(run, 2)
        assert len(run.living()) >= 9  # tlrun, agent, aggregator, and three for each worker.
        run.signal(signal.SIGKILL)
        assert run.wait() == -signal.SIGKILL
        assert run.leaves_nothing()


def test_agent_killed_by_kill_9_ends_the_run_without_orphans():
    helper = "subprocess.Popen(['sleep', '600'])\n"
    with Run("-np", "2", NO_AGGREGATOR, *worker(STUBBORN + helper + SLEEP)) as run:
        assert all_ready(run, 2)
        os.kill(agent_of(run), signal.SIGKILL)
        assert run.wait() == 255
        assert "the connection to its agent is lost" in run.errors()
        assert run.leaves_nothing()


def test_agent_and_tlrun_killed_together_leave_no_workers():
    with Run("-np", "2", NO_AGGREGATOR, *worker(STUBBORN + SLEEP)) as run:
        assert all_ready(run, 2)
        agent = agent_of(run)
        run.signal(signal.SIGSTOP)
        os.kill(agent, signal.SIGKILL)
        run.signal(signal.SIGKILL)
        assert run.leaves_nothing()


def test_lost_agent_comes_back_with_its_workers(tmp_path):
    with Run("-np", "2", NO_AGGREGATOR, "--max-restarts=1", *worker(WAIT, tmp_path)) as run:
        assert all_ready(run, 2)
        os.kill(agent_of(run), signal.SIGKILL)
        assert all_ready(run, 4)
        (tmp_path / "go").touch()
        assert run.wait() == 0
        assert run.leaves_nothing()


def test_aggregator_that_dies_ends_the_run(programs):
    with Run("-np", "2", *worker(SLEEP), TL_PROGRAMS=programs) as run:
        assert all_ready(run, 2)
        os.kill(aggregator_of(run), signal.SIGKILL)
        assert run.wait() == 128 + signal.SIGKILL
        assert "the aggregator was ended by SIGKILL; stopping all workers" in run.errors()
        assert run.leaves_nothing()


def test_aggregator_that_dies_comes_back_at_the_same_place(programs, tmp_path):
    code = f"""
{WAIT}
import socket
host, port = os.environ["TL_AGGREGATOR"].rsplit(":", 1)
deadline = time.monotonic() + 30
while True:
    try:
        socket.create_connection((host, int(port)), 1).close()
        break
    except OSError:
        assert time.monotonic() < deadline
        time.sleep(0.05)
"""
    command = worker(code, tmp_path)
    with Run("-np", "1", "--max-restarts=1", *command, TL_PROGRAMS=programs) as run:
        assert all_ready(run, 1)
        old = aggregator_of(run)
        os.kill(old, signal.SIGKILL)
        assert until(lambda: old not in run.living())
        (tmp_path / "go").touch()
        assert run.wait() == 0, run.errors()


def workers_of(run: Run) -> list[int]:
    start = f"{sys.executable} -c"
    return [pid for pid, command in run.living().items() if command.startswith(start)]


def agent_of(run: Run) -> int:
    return next(pid for pid, command in run.living().items() if "launch.agent" in command)


def aggregator_of(run: Run) -> int:
    return next(pid for pid, command in run.living().items() if "tl-aggregator" in command)
