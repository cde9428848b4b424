"""Ranks, attempts and fences, without a cluster: time is a number here."""

import pytest
from tensorlightning.spark.places import SILENCE_SECONDS, Places


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_first_to_come_is_rank_0_whatever_its_partition(clock):
    places = Places(clock=clock)
    assert places.hello(7, 70, "a", 1)["rank"] == 0
    assert places.hello(2, 71, "b", 2)["rank"] == 1
    assert places.hello(7, 70, "a", 1)["rank"] == 0, "the same attempt again: a new connection"


def test_another_attempt_has_the_rank_and_goes_on_where_the_lost_one_was(clock):
    places = Places(2, clock=clock)
    places.hello(0, 1, "a", 1)
    places.beat(0, 1, {"steps": 30, "samples": 960, "epochs": 1.5, "report": {"sent": 10}})
    places.hung_up(0, 1)
    again = places.hello(0, 5, "b", 2)
    assert (again["rank"], again["start"], again["trained"]) == (0, 1.5, 960)
    places.beat(0, 5, {"steps": 10, "samples": 320, "epochs": 2.0, "report": {"sent": 7}})
    record = places.done(
        0, 5, {"steps": 12, "samples": 384, "epochs": 3.0, "report": {"sent": 8}, "loss": 0.5}
    )["record"]
    assert (record["steps"], record["samples"], record["bytes"]) == (42, 1344, 18), "each once"


def test_an_older_attempt_that_wakes_up_is_told_to_end(clock):
    places = Places(clock=clock)
    places.hello(0, 1, "a", 1)
    clock.now += SILENCE_SECONDS + 1
    assert places.hello(0, 2, "b", 2)["rank"] == 0
    assert "replaced by attempt 2 on b" in places.beat(0, 1, {"steps": 99})["stop"]
    assert "replaced" in places.hello(0, 1, "a", 1)["stop"]
    assert "stop" in places.done(0, 1, {"steps": 99})
    assert places.by_partition[0].steps == 0, "nothing of it counts"


def test_a_twin_stands_by_while_the_other_is_well_and_takes_over_when_it_is_not(clock):
    places = Places(clock=clock)
    places.hello(0, 1, "a", 1)
    assert "wait" in places.hello(0, 2, "b", 2)
    clock.now += SILENCE_SECONDS - 1
    places.beat(0, 1, {"steps": 1})
    clock.now += SILENCE_SECONDS - 1
    assert "wait" in places.hello(0, 2, "b", 2)
    clock.now += 2
    assert places.hello(0, 2, "b", 2)["rank"] == 0
    assert "stop" in places.beat(0, 1, {})


def test_who_has_finished_is_not_trained_again(clock):
    places = Places(clock=clock)
    places.hello(0, 1, "a", 1)
    record = places.done(0, 1, {"steps": 5, "samples": 50, "epochs": 1.0, "loss": 0.25})["record"]
    places.hung_up(0, 1)
    assert places.hello(0, 9, "b", 2)["record"] == record
    assert places.by_partition[0].state == "done"


def test_a_failure_makes_room_for_the_next_attempt_at_once(clock):
    places = Places(clock=clock)
    places.hello(0, 1, "a", 1)
    places.failed(0, 1, "ValueError: no")
    assert places.by_partition[0].error == "ValueError: no"
    assert places.hello(0, 2, "a", 2)["rank"] == 0


def test_gathered_workers_get_ranks_by_host_when_all_are_there(clock):
    places = Places(4, gather=True, clock=clock)
    for partition, host in enumerate("bab"):
        answer = places.hello(partition, partition, host, partition)
        assert answer["wait"] == f"{partition + 1} of 4 workers have started"
    places.hung_up(1, 1)
    assert "wait" in places.hello(3, 3, "a", 3), "one has gone again"
    assert places.hello(1, 8, "a", 8)["rank"] == 0
    told = {partition: places.hello(partition, partition, "?", 0) for partition in (0, 2, 3)}
    assert {partition: answer["rank"] for partition, answer in told.items()} == {3: 1, 0: 2, 2: 3}
    assert [told[partition]["local_rank"] for partition in (3, 0, 2)] == [1, 0, 1]


def test_how_far_the_job_is_counts_those_who_have_not_come(clock):
    places = Places(4, start=1.0, clock=clock)
    assert places.epochs() == 1.0
    assert places.hello(0, 1, "a", 1)["start"] == 1.0
    places.beat(0, 1, {"epochs": 3.0})
    assert places.epochs() == pytest.approx(1.5)


def test_an_old_connection_that_ends_late_is_not_the_new_ones_end(clock):
    places = Places(clock=clock)
    places.hello(0, 1, "a", 1, line=10)
    places.hello(0, 1, "a", 1, line=11)
    places.hung_up(0, 1, 10)
    assert places.by_partition[0].state == "running"
    places.hung_up(0, 1, 11)
    assert places.by_partition[0].state == "lost"


def test_what_has_finished_too_early_is_begun_anew(clock):
    places = Places(clock=clock)
    places.hello(0, 1, "a", 1)
    places.done(0, 1, {"steps": 5, "samples": 50, "epochs": 1.0, "rows": 50})
    places.hello(0, 2, "a", 2)
    places.reopen(0, 1)
    assert places.by_partition[0].state == "done", "an older attempt has no say"
    places.reopen(0, 2)
    places.failed(0, 2, "ConnectionError")
    answer = places.hello(0, 3, "a", 3)
    assert (answer["record"], answer["start"], answer["trained"]) == (None, 0.0, 0)


def test_how_far_a_job_is_counts_partitions_that_have_not_come(clock):
    places = Places(4, clock=clock)
    assert not places.have_begun()
    for partition, epochs in enumerate((2.0, 1.0)):
        places.hello(partition, partition, "a", 1)
        places.beat(partition, partition, {"steps": 5, "epochs": epochs})
    assert places.have_begun()
    assert places.epochs() == 0.75


def test_how_far_a_job_of_unknown_size_is_nobody_has_to_have_missed(clock):
    places = Places(clock=clock, start=0.5)
    assert places.epochs() == 0.5
    for partition, epochs in enumerate((2.0, 1.0)):
        places.hello(partition, partition, "a", 1)
        places.beat(partition, partition, {"steps": 5, "epochs": epochs})
    assert places.epochs() == 1.0
