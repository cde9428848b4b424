"""Lines for the launcher."""

import contextlib
import json
import os

import pytest
from tensorlightning import report


@pytest.fixture
def pipe(monkeypatch):
    read, write = os.pipe()
    monkeypatch.setenv("TL_REPORT_FD", str(write))
    yield read, write
    for end in (read, write):
        with contextlib.suppress(OSError):
            os.close(end)


def lines(pipe) -> list[dict]:
    os.set_blocking(pipe[0], False)
    return [json.loads(line) for line in os.read(pipe[0], 1 << 16).splitlines()]


def statistics() -> dict:
    return {"bytes_sent": 5, "bytes_received": 6, "dense_bytes": 700, "policy": "local", "other": 1}


def test_a_line_says_how_training_goes(pipe):
    report.Reporter().step(3, {"loss": 0.5, "accuracy": 0.75}, statistics)
    (line,) = lines(pipe)
    assert line["step"] == 3 and line["loss"] == 0.5 and line["metrics"] == {"accuracy": 0.75}
    assert (line["sent"], line["received"], line["dense"]) == (5, 6, 700)
    assert line["policy"] == "local" and line["done"] is False and "other" not in line


def test_lines_are_far_apart_but_for_the_last(pipe, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(report.time, "monotonic", lambda: now[0])
    reporter = report.Reporter()
    for _ in range(100):
        now[0] += 0.1
        reporter.step(1, None, statistics)
    reporter.finish(None, statistics())
    written = lines(pipe)
    assert len(written) <= 10 / report.SECONDS_BETWEEN + 1
    assert written[-1]["done"] is True and written[-1]["step"] == 100
    assert written[-2]["steps_per_s"] == pytest.approx(10, rel=0.1)


def test_nan_is_written_as_json_has_it(pipe):
    report.Reporter().step(1, {"loss": float("nan")}, dict)
    assert lines(pipe)[0]["loss"] is None


def test_a_launcher_that_does_not_read_stops_nobody(pipe):
    reporter = report.Reporter()
    for _ in range(3000):
        reporter.finish({"loss": 1.0}, statistics())
    assert len(lines(pipe)) > 100


def test_a_launcher_that_is_gone_stops_nobody(pipe):
    reporter = report.Reporter()
    os.close(pipe[0])
    reporter.finish(None, {})
    reporter.finish(None, {})


@pytest.mark.parametrize("text", ["", "none", "9999"])
def test_without_a_pipe_nothing_is_written(monkeypatch, text):
    monkeypatch.setenv("TL_REPORT_FD", text)
    report.Reporter().finish({"loss": 1.0}, {})
