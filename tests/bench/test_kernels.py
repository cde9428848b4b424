"""That the benchmark measures and reports; how fast anything is does not matter here."""

import math

REQUIRED = {
    "prune_1pct": 0.85,
    "prune_10pct": 0.85,
    "fused_1pct": 0.5,
    "topk_vs_nth": 5,
    "topk_vs_numpy": 10,
    "decode_1pct": 0.5,
    "threads2": 1.6,
}


def test_json_has_a_positive_ratio_for_every_target(quick):
    _, results = quick
    assert results["targets"] == REQUIRED
    assert set(REQUIRED) <= set(results["ratios"])
    for ratio in results["ratios"].values():
        assert isinstance(ratio, float)
        assert math.isfinite(ratio)
        assert ratio > 0


def test_json_keeps_every_round_and_the_times(quick):
    _, results = quick
    for name, ratio in results["ratios"].items():
        assert len(results["by_round"][name]) == results["machine"]["rounds"] == 2
        assert min(results["by_round"][name]) <= ratio <= max(results["by_round"][name])
        assert results["ms"][name] > 0
        assert results["roof_ms"][name] > 0
        assert results["rates"][name].endswith(("GB/s", "M entries/s"))


def test_json_says_what_was_measured_where(quick):
    facts = quick[1]["machine"]
    assert facts["entries"] == 1_000_000
    assert facts["instruction_set"] in ("scalar", "avx2", "avx512")
    assert facts["cores"] >= 1
    assert len(facts["load_average"]) == 3
    assert {"cpu", "date", "commit", "free_cores", "huge_pages"} <= set(facts)


def test_table_shows_every_ratio_and_its_verdict(quick):
    printed, results = quick
    for name in results["ratios"]:
        (row,) = [line for line in printed.splitlines() if line.split()[:1] == [name]]
        assert row.split()[-1] in ("ok", "below") or name not in REQUIRED


def test_missed_targets_are_named(quick):
    printed, results = quick
    missed = [name for name in REQUIRED if results["ratios"][name] < REQUIRED[name]]
    assert ("Below target: " if missed else "Every target is met.") in printed
    sentence = " ".join(printed.split()).partition("Below target: ")[2]
    for name in missed:
        assert f"{name} (" in sentence


def test_progress_is_shown_while_it_runs(quick):
    printed, results = quick
    for name in results["ratios"]:
        assert f"round 1/2: {name}\n" in printed


def test_missing_binary_says_what_to_run(bench, tmp_path):
    ran = bench(f"--binary={tmp_path / 'nothing'}")
    assert ran.returncode == 1
    assert "run make bench-kernels" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_binary_that_fails_is_an_error(bench, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho out of luck >&2\nexit 3\n")
    broken.chmod(0o755)
    ran = bench("--quick", f"--binary={broken}", f"--json={tmp_path / 'no.json'}")
    assert ran.returncode == 1
    assert "status 3 and said: out of luck" in ran.stderr
    assert not (tmp_path / "no.json").exists()


def test_help_explains_the_options(bench):
    ran = bench("--help")
    assert ran.returncode == 0
    for option in ("--quick", "--entries", "--rounds", "--json"):
        assert option in ran.stdout


def test_entries_must_be_positive(bench):
    ran = bench("--entries=0")
    assert ran.returncode == 2
    assert "0 is not a positive number" in ran.stderr
