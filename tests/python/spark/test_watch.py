"""The lines between tasks and the driver, over real sockets."""

import socket
import threading

import pytest
from cluster.wait import until
from tensorlightning.spark import lines
from tensorlightning.spark.places import Places
from tensorlightning.spark.watch import Watch

SECRET = "a secret of this test"
SECONDS = 20.0


@pytest.fixture
def watch():
    made = Watch(Places(2), SECRET, "127.0.0.1")
    made.aggregator = "127.0.0.1:7070"
    yield made
    made.close()


def line_to(watch: Watch, secret: str = SECRET) -> lines.Line:
    return lines.connect("127.0.0.1", watch.port, secret, SECONDS)


def hello(line: lines.Line, partition: int, attempt: int) -> dict:
    who = {"partition": partition, "attempt": attempt, "host": "here", "pid": 1}
    return line.ask({"do": "hello", **who})


def test_a_task_is_told_its_rank_and_where_the_aggregator_is(watch):
    answer = hello(line_to(watch), 3, 30)
    assert (answer["rank"], answer["aggregator"]) == (0, "127.0.0.1:7070")


def test_who_does_not_know_the_secret_is_turned_away(watch):
    with pytest.raises(lines.LineError):
        line_to(watch, "another secret")


def test_a_driver_that_does_not_know_the_secret_is_not_believed():
    def pretend(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            line = lines.Line(connection, SECONDS)
            line.ask({"nonce": "a"})
            line.send({"proof": "b"})

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=pretend, args=(listener,), daemon=True).start()
        with pytest.raises(lines.LineError, match="does not know the job's secret"):
            lines.connect("127.0.0.1", listener.getsockname()[1], SECRET, SECONDS)


def test_a_connection_that_ends_makes_its_worker_lost(watch):
    line = line_to(watch)
    hello(line, 0, 1)
    line.close()
    assert until(lambda: watch.places.by_partition[0].state == "lost", SECONDS)
    back = line_to(watch)
    assert hello(back, 0, 1)["rank"] == 0
    assert back.ask({"do": "beat", "partition": 0, "attempt": 1, "steps": 4}) == {}
    assert watch.places.by_partition[0].state == "running"


@pytest.mark.parametrize(
    "message",
    [
        {"do": "beat"},
        {"do": "dance", "partition": 0, "attempt": 1},
        {"do": "hello", "partition": "x", "attempt": 1},
        {"partition": 0},
        {"do": "done", "partition": 0, "attempt": 1, "record": 5},
    ],
)
def test_nonsense_ends_the_connection_and_nothing_else(watch, message):
    good = line_to(watch)
    hello(good, 0, 1)
    with pytest.raises(lines.LineError):
        line_to(watch).ask(message)
    assert good.ask({"do": "beat", "partition": 0, "attempt": 1}) == {}


def test_garbage_before_the_handshake_ends_the_connection(watch):
    with socket.create_connection(("127.0.0.1", watch.port), timeout=SECONDS) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while stranger.recv(1 << 16):
            pass
    assert hello(line_to(watch), 0, 1)["rank"] == 0


def test_a_failure_that_another_attempt_would_repeat_is_reported_at_once(watch):
    heard = []
    watch.on_fatal(heard.append)
    line = line_to(watch)
    hello(line, 0, 1)
    who = {"do": "failed", "partition": 0, "attempt": 1}
    line.ask({**who, "error": "lost", "fatal": False})
    line.ask({**who, "error": "RowError: bad", "fatal": True})
    assert heard == ["partition 0: RowError: bad"]


def test_a_failure_of_an_older_attempt_ends_nobody_else(watch):
    heard = []
    watch.on_fatal(heard.append)
    line = line_to(watch)
    hello(line, 0, 1)
    line.close()
    assert until(lambda: watch.places.by_partition[0].state == "lost", SECONDS)
    newer = line_to(watch)
    assert hello(newer, 0, 2)["rank"] == 0
    late = {"do": "failed", "partition": 0, "attempt": 1, "error": "ValueError", "fatal": True}
    line_to(watch).ask(late)
    assert heard == []
    assert newer.ask({"do": "beat", "partition": 0, "attempt": 2}) == {}


def test_an_aggregator_that_comes_anew_has_lost_what_the_first_one_knew(watch):
    heard = []
    watch.on_fatal(heard.append)
    watch.aggregator = None
    assert line_to(watch).ask({"do": "aggregator", "where": "a:1"}) == {}
    assert line_to(watch).ask({"do": "aggregator", "where": "a:1"}) == {}, "the same, again"
    assert "stop" in line_to(watch).ask({"do": "aggregator", "where": "b:1"})
    assert len(heard) == 1


def test_after_stop_everybody_is_told_to_end(watch):
    line = line_to(watch)
    hello(line, 0, 1)
    watch.stop("enough")
    assert line.ask({"do": "beat", "partition": 0, "attempt": 1}) == {"stop": "enough"}
    assert hello(line_to(watch), 1, 2) == {"stop": "enough"}


def test_a_large_job_may_gather():
    made = Watch(Places(300, gather=True), SECRET, "127.0.0.1")
    made.aggregator = "127.0.0.1:7070"
    try:
        opened = [line_to(made) for _ in range(300)]
        answers = [hello(line, number, number) for number, line in enumerate(opened)]
        assert answers[0]["wait"] == "1 of 300 workers have started"
        assert answers[-1]["rank"] == 299
    finally:
        made.close()
