"""What goes wrong in one worker, or between them: it ends soon, says why, and spoils nothing."""

import os
import signal
from pathlib import Path

import pytest
from cluster.wait import until

SOON_SECONDS = 20  # To be interrupted or refused, on a busy machine.
SECRET = "a secret of the job's workers"


def of(aggregator) -> dict[str, str]:
    return {"TL_AGGREGATOR": aggregator.endpoint, "TL_JOB": "test"}


def test_a_worker_that_is_killed_leaves_the_others_to_finish(nursery, aggregator, tmp_path):
    stop = tmp_path / "stop"
    first, second = nursery.fleet("endless", {"stop": str(stop)}, size=2, **of(aggregator))
    assert first.has_said("10 steps") and second.has_said("10 steps")
    second.kill()
    stop.touch()
    result = first.finish()
    assert result["accuracy"] > 0.5


@pytest.mark.parametrize("policy", ["elastic", "gradient"])
def test_a_worker_that_is_started_again_goes_on_with_the_others(
    nursery, aggregator, tmp_path, policy
):
    stop = tmp_path / "stop"
    options = {"policy": policy, "stop": str(stop)}
    variables = of(aggregator) | {"TL_SIZE": "2"}
    first = nursery.start("endless", options, TL_RANK="0", TL_ATTEMPT="1", **variables)
    second = nursery.start("endless", options, TL_RANK="1", TL_ATTEMPT="1", **variables)
    assert first.has_said("10 steps") and second.has_said("10 steps")
    second.kill()
    second = nursery.start("endless", options, TL_RANK="1", TL_ATTEMPT="2", **variables)
    assert second.has_said("10 steps")
    stop.touch()
    assert first.finish()["digest"] == second.finish()["digest"]


@pytest.mark.parametrize("policy", ["elastic", "gradient"])
def test_control_c_ends_training(nursery, aggregator, policy):
    fleet = nursery.fleet("endless", {"policy": policy}, size=2, **of(aggregator))
    assert all(worker.has_said("10 steps") for worker in fleet)
    for worker in fleet:
        worker.send(signal.SIGINT)
    for worker in fleet:
        assert worker.wait(SOON_SECONDS) != 0
        assert "KeyboardInterrupt" in worker.log() or "Cancelled" in worker.log()


def test_control_c_that_tensorflow_drops_ends_training_all_the_same(nursery):
    assert nursery.start("drops_control_c").finish() == {"ended": True, "step": 2}


def test_control_c_ends_waiting_for_another_workers_gradients(nursery, aggregator):
    first, second = nursery.fleet("endless", {"policy": "gradient"}, size=2, **of(aggregator))
    assert first.has_said("10 steps") and second.has_said("10 steps")
    second.send(signal.SIGSTOP)
    try:
        first.send(signal.SIGINT)
        assert first.wait(SOON_SECONDS) != 0
    finally:
        second.send(signal.SIGCONT)


def test_control_c_ends_waiting_for_others_to_finish(nursery, aggregator):
    variables = of(aggregator) | {"TL_SIZE": "2"}
    stop = Path(os.devnull)  # It exists: the first stops after a step.
    second = nursery.start("endless", {}, TL_RANK="1", **variables)
    first = nursery.start("endless", {"stop": str(stop)}, TL_RANK="0", **variables)
    assert first.has_said("waits for other workers to finish")
    first.send(signal.SIGINT)
    assert first.wait(SOON_SECONDS) != 0
    assert second.running()


def test_control_c_ends_waiting_for_an_aggregator(nursery, free_port):
    worker = nursery.start("joins", {"aggregator": f"127.0.0.1:{free_port}"})
    assert worker.has_said("waits for the job's weights")
    worker.send(signal.SIGINT)
    assert worker.wait(SOON_SECONDS) != 0
    assert "KeyboardInterrupt" in worker.log() or "Cancelled" in worker.log()


def test_an_aggregator_that_is_not_there_is_named_when_patience_ends(nursery, free_port):
    where = f"127.0.0.1:{free_port}"
    result = nursery.start("joins", {"aggregator": where, "patience": 1}).finish(SOON_SECONDS)
    assert result["error"] == "DeadlineExceededError"
    assert where in result["message"]


def test_a_wrong_secret_is_refused(nursery, tmp_path):
    from integration.processes import Aggregator

    right, wrong = tmp_path / "right", tmp_path / "wrong secret"
    for path, text in ((right, SECRET), (wrong, SECRET[::-1])):
        path.touch(0o600)
        path.write_text(text)
    with Aggregator(f"--secret-file={right}") as aggregator:
        results = {
            path.name: nursery.start(
                "joins", {"aggregator": aggregator.endpoint, "secret_file": str(path)}
            ).finish()
            for path in (right, wrong)
        }
    assert results["right"]["error"] is None
    assert results["wrong secret"]["error"] == "PermissionDeniedError"
    assert "secret" in results["wrong secret"]["message"]


@pytest.mark.parametrize("policy", ["elastic", "gradient"])
def test_a_nan_stays_where_it_is(nursery, aggregator, policy):
    fleet = nursery.fleet("gets_a_nan", {"policy": policy}, size=2, **of(aggregator))
    mine, other = (worker.finish() for worker in fleet)
    assert mine == {"error": None, "finite": True}
    assert other["error"] == "InvalidArgumentError"
    assert "NaN" in other["message"]


def test_programs_end_well_with_exchanges_under_way(nursery, aggregator):
    ends = {"return": 0, "exit": 7, "exception": 1}
    for number in range(7):
        # Alone, each with an aggregator of its own to end, or together.
        together = number % 2 == 1
        workers = {
            how: nursery.start(
                "exits_in_the_middle",
                {"how": how},
                **(of(aggregator) | {"TL_RANK": str(rank)} if together else {}),
            )
            for rank, how in enumerate(ends)
        }
        for how, worker in workers.items():
            assert worker.wait(SOON_SECONDS) == ends[how], worker.log()
            assert "terminate called" not in worker.log()


def test_a_worker_whose_aggregator_dies_says_so(nursery, aggregator):
    options = {"policy": "gradient", "patience": 6}
    fleet = nursery.fleet("endless", options, size=2, **of(aggregator))
    assert all(worker.has_said("10 steps") for worker in fleet)
    aggregator.kill()
    for worker in fleet:
        assert worker.wait() == 1
        assert until(lambda worker=worker: aggregator.endpoint in worker.log())
