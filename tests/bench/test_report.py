"""That each benchmark reports in the same form; how fast anything is does not matter here."""

import math

import pytest
from report import Ratio, Row, verdict

TARGETS = {
    "kernels": {
        "prune_1pct": 0.85,
        "prune_10pct": 0.85,
        "fused_1pct": 0.5,
        "topk_vs_nth": 5,
        "topk_vs_numpy": 10,
        "decode_1pct": 0.5,
        "threads2": 1.6,
    },
    "comm": {
        "bulk_vs_iperf": 0.9,
        "rtt_vs_echo": 0.667,
        "apply_vs_kernels": 0.5,
        "scale_1024": 0.8,
        "worker_kib": 64,
        "overlap": 0.97,
    },
}
AT_MOST = {"worker_kib"}


@pytest.fixture(params=TARGETS)
def name(request) -> str:
    return request.param


@pytest.fixture
def reported(request, name):
    return request.getfixturevalue(name)


def test_json_has_a_positive_ratio_for_every_target(name, reported):
    assert reported.results["targets"] == TARGETS[name]
    assert set(TARGETS[name]) <= set(reported.results["ratios"])
    for ratio in reported.results["ratios"].values():
        assert isinstance(ratio, float)
        assert math.isfinite(ratio)
        assert ratio > 0


def test_json_keeps_every_round(reported):
    for name, ratio in reported.results["ratios"].items():
        by_round = reported.results["by_round"][name]
        assert len(by_round) >= reported.results["machine"]["rounds"] == 2
        assert min(by_round) <= ratio <= max(by_round)


def test_json_says_where_it_was_measured(reported):
    facts = reported.results["machine"]
    assert facts["cores"] >= 1
    assert len(facts["load_average"]) == 3
    assert {"cpu", "date", "commit", "free_cores", "huge_pages"} <= set(facts)


def test_table_shows_every_ratio_and_its_verdict(name, reported):
    for ratio in reported.results["ratios"]:
        rows = [r for r in reported.printed.splitlines() if r.startswith(f"  {ratio} ")]
        assert rows, f"no row of {ratio}"
        row = rows[0]  # What is missed may be named again at the start of a later line.
        missed = "above" if ratio in AT_MOST else "below"
        assert row.split()[-1] in ("ok", missed) or ratio not in TARGETS[name]


def test_missed_targets_are_named(name, reported):
    ratios = reported.results["ratios"]
    missed = [
        ratio
        for ratio, target in TARGETS[name].items()
        if (ratios[ratio] > target if ratio in AT_MOST else ratios[ratio] < target)
    ]
    assert ("Targets missed: " if missed else "Every target is met.") in reported.printed
    sentence = " ".join(reported.printed.split()).partition("Targets missed: ")[2]
    for ratio in missed:
        assert f"{ratio} (" in sentence


def test_progress_is_shown_while_it_runs(reported):
    for ratio in reported.results["ratios"]:
        assert any(line.endswith(ratio) for line in reported.printed.splitlines())


def row(target: float | None, at_most: bool, *by_round: float) -> Row:
    return Row(Ratio("speed", "light", target, at_most), ["1 m/s"], "2 m/s", by_round)


def test_a_target_is_the_least_or_the_most_that_the_median_may_be():
    assert not row(0.5, False, 0.4, 0.5, 0.9).missed
    assert row(0.5, False, 0.4, 0.49, 0.9).missed
    assert not row(64, True, 10, 64, 90).missed
    assert row(64, True, 10, 65, 90).missed
    assert not row(None, False, 0.01).missed


def test_verdict_names_what_was_missed_and_by_how_much():
    assert verdict([row(0.5, False, 0.6)]) == "Every target is met."
    assert verdict([row(0.5, False, 0.25)]) == "Targets missed: speed (0.25 of 0.5)."


@pytest.mark.parametrize("script", ["kernels.py", "comm.py"])
def test_help_explains_the_options(bench, script):
    ran = bench(script, "--help")
    assert ran.returncode == 0
    for option in ("--quick", "--rounds", "--json"):
        assert option in ran.stdout


@pytest.mark.parametrize("script", ["kernels.py", "comm.py"])
def test_rounds_must_be_positive(bench, script):
    ran = bench(script, "--rounds=0")
    assert ran.returncode == 2
    assert "0 is not a positive number" in ran.stderr
