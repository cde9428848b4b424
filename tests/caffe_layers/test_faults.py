"""What the stock caffe binary does when something goes wrong: it ends or goes on, and says why."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import caffe_stock
import pytest
from caffe_layers.workplace import DEADLINE_S, HIDDEN, LAYERS, Workplace
from cluster.wait import until
from integration.processes import Aggregator

pytestmark = caffe_stock.needed
LINE = "tensorlightning_param { }"
ENDLESS = 1_000_000
SECRET = "a secret of more than sixteen bytes"


@pytest.fixture
def place(tmp_path):
    return Workplace(tmp_path)


@contextlib.contextmanager
def running(place, command, **variables):
    process = place.start(command, **variables)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def tlrun(*options: str) -> list[str]:
    return [sys.executable, "-m", "tensorlightning.launch", "-np", "2", *options]


def pid_of_worker(place, rank: int) -> int:
    """glog's lines have the number of the thread, which is that of the process here."""
    said = re.findall(rf"^\[{rank}\] I\d+ [\d:.]+ +(\d+) .*worker {rank} of", place.said(), re.M)
    return int(said[-1])


def wait_for(place, text: str, times: int = 1) -> None:
    assert until(lambda: place.said().count(text) >= times, DEADLINE_S), place.said()[-2000:]


def test_a_worker_that_is_killed_ends_the_job(place):
    place.write_solver(LINE, max_iter=ENDLESS, test_interval=ENDLESS)
    with running(place, [*tlrun(), *place.command()]) as job:
        wait_for(place, " of 2 exchanges", times=2)
        os.kill(pid_of_worker(place, 1), signal.SIGKILL)
        assert job.wait(DEADLINE_S) == 128 + signal.SIGKILL
        assert "worker 1 on localhost was ended by SIGKILL" in place.said()


def test_a_worker_that_is_killed_comes_back_and_the_job_ends_well(place):
    place.write_solver(LINE, max_iter=800, test_interval=800)
    with running(place, [*tlrun("--max-restarts=1"), *place.command()]) as job:
        wait_for(place, " of 2 exchanges", times=2)
        os.kill(pid_of_worker(place, 1), signal.SIGKILL)
        assert job.wait(DEADLINE_S) == 0, place.said()
    assert place.said().count("worker 1 of 2 exchanges") == 2
    accuracy = re.findall(r"accuracy = ([\d.]+)", place.said())[-1]
    assert float(accuracy) > 0.8


def test_an_aggregator_that_is_killed_comes_back_and_the_job_ends_well(place):
    place.write_solver(LINE, max_iter=800, test_interval=800)
    options = ["--max-restarts=1", "--snapshot-dir=snapshots"]
    with running(place, [*tlrun(*options), *place.command()]) as job:
        wait_for(place, " of 2 exchanges", times=2)
        subprocess.run(["pkill", "-KILL", "-f", f"snapshot-dir={place.folder}"], check=True)
        assert job.wait(DEADLINE_S) == 0, place.said()
    accuracy = re.findall(r"accuracy = ([\d.]+)", place.said())[-1]
    assert float(accuracy) > 0.8


def test_ctrl_c_stops_with_a_snapshot(place):
    place.write_solver(LINE, max_iter=ENDLESS, test_interval=ENDLESS)
    with running(place, place.command()) as caffe:
        wait_for(place, "worker 0 of 1 exchanges")
        caffe.send_signal(signal.SIGINT)
        assert caffe.wait(DEADLINE_S) == 0
    assert "Optimization stopped early" in place.said()
    assert list(place.folder.glob("shot_iter_*.caffemodel"))


def test_ctrl_c_ends_a_wait_for_others(place):
    place.write_solver(LINE, max_iter=ENDLESS, test_interval=ENDLESS)
    variables = {
        "TL_AGGREGATOR": "127.0.0.1:9",
        "TL_SIZE": "2",
        "TL_RANK": "1",
        "TL_SECRET": SECRET,
    }
    with running(place, place.command(), **variables) as caffe:
        wait_for(place, "Starting Optimization")
        caffe.send_signal(signal.SIGINT)
        assert caffe.wait(DEADLINE_S) == 0


@pytest.fixture
def aggregator():
    with Aggregator(TL_SECRET=SECRET) as started:
        yield started


def joining(aggregator, rank: int, **variables: str) -> dict[str, str]:
    told = {"TL_AGGREGATOR": aggregator.endpoint, "TL_SECRET": SECRET}
    return told | {"TL_SIZE": "2", "TL_RANK": str(rank), "TL_PATIENCE": "20"} | variables


def test_a_wrong_secret(place, aggregator):
    place.write_solver(LINE, max_iter=20)
    ran = place.train(**joining(aggregator, 0, TL_SECRET=SECRET[::-1]))
    assert ran.status == 1
    assert "tensorlightning: " in ran.text
    assert "secret" in ran.text


def test_another_net(place, aggregator, tmp_path_factory):
    place.write_solver(LINE, max_iter=ENDLESS, test_interval=ENDLESS)
    layers = LAYERS.replace(f"num_output: {HIDDEN}", f"num_output: {HIDDEN + 1}")
    other = Workplace(tmp_path_factory.mktemp("other"), layers)
    other.write_solver(LINE, max_iter=20)
    with running(place, place.command(), **joining(aggregator, 0)):
        wait_for(place, "worker 0 of 2 exchanges")
        ran = other.train(**joining(aggregator, 1))
    assert ran.status == 1
    assert f"'hidden/0' float32 [{HIDDEN + 1}, " in ran.text
    assert f"'hidden/0' float32 [{HIDDEN}, " in ran.text


def test_a_job_that_nobody_aggregates(place):
    place.write_solver(LINE, max_iter=20)
    ran = place.train(TL_SIZE="2", TL_RANK="0")
    assert ran.status == 1
    assert "TL_AGGREGATOR" in ran.text


def test_a_test_does_not_wait_for_an_aggregator_that_stands_still(
    place, aggregator, tmp_path_factory
):
    other = Workplace(tmp_path_factory.mktemp("other"))
    for one in (place, other):
        one.write_solver(
            "tensorlightning_param { period: 1 patience: 600 }", max_iter=ENDLESS, test_interval=50
        )
    with (
        running(place, place.command(), **joining(aggregator, 0)),
        running(other, other.command(), **joining(aggregator, 1)),
    ):
        wait_for(other, "worker 1 of 2 exchanges")
        os.kill(aggregator.pid, signal.SIGSTOP)
        wait_for(place, "this worker's own model is shown", times=3)
