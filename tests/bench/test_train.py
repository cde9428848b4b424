"""That the benchmark of training measures everything; how good anything is does not matter here."""

import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
import train_centre
import train_plan
import train_results
import train_worker
from PIL import Image
from report import BenchmarkError
from train_fleet import Outcome, Point, Spec
from train_learning import Side
from train_models import TASKS, Batches, text

ROOT = Path(__file__).resolve().parent.parent.parent
TARGETS = {
    "bytes_vs_dense_easgd": 50,
    "bytes_vs_psstrategy": 500,
    "bytes_vs_mwms": 500,
    "accuracy_behind_dense": 0.5,
    "accuracy_behind_one": 0.5,
    "steps_to_accuracy_4": 2,
    "time_to_accuracy_2": 1.5,
    "speed_vs_psstrategy": 5,
    "speed_vs_mwms": 5,
    "speed_vs_silent": 0.9,
}


@pytest.fixture(scope="module")
def built():
    """The environment in which everything is found that was built without -c opt."""
    targets = ["//tf_ops:libtensorlightning_tf.so", "//comm/tools:tl-aggregator"]
    subprocess.run(["bazel", "build", "--noshow_progress", *targets], cwd=ROOT, check=True)
    where = subprocess.run(
        ["bazel", "info", "bazel-bin"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    folder = Path(where.stdout.strip())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TL_TF_LIBRARY", str(folder / "tf_ops/libtensorlightning_tf.so"))
        patch.setenv("TL_PROGRAMS", str(folder / "comm/tools"))
        yield


@pytest.fixture(scope="module")
def quick(bench, built, tmp_path_factory):
    """What a quick run has printed, its JSON, and its plot."""
    path = tmp_path_factory.mktemp("train") / "out" / "train.json"  # The folder is made.
    ran = bench("train.py", "--quick", f"--json={path}")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, json.loads(path.read_text()), path.with_suffix(".png")


def test_every_target_has_a_finite_ratio_and_a_row(quick):
    printed, results, _ = quick
    assert results["targets"] == TARGETS
    for name in TARGETS:
        assert math.isfinite(results["ratios"][name])
        assert any(line.startswith(f"  {name} ") for line in printed.splitlines())
    assert ("Targets missed: " in printed) or ("Every target is met." in printed)


def test_bytes_are_those_of_the_interfaces_and_each_side_has_some(quick):
    _, results, _ = quick
    runs = {policy: side["runs"][0] for policy, side in results["learning"]["mlp"].items()}
    assert runs["one"]["bytes"] == {"start": 0, "training": 0, "finish": 0}
    model = 4 * runs["one"]["parameters"]
    for policy in ("elastic", "local", "gradient", "dense"):
        moved = runs[policy]["bytes"]
        # Rank 0 has brought the model, and both got it.
        assert moved["start"] > 2 * model
        assert moved["training"] > 0
    exchanges = runs["dense"]["steps"] // 10 * runs["dense"]["workers"]
    # One that is due while another is under way does not take place.
    whole = 2 * model * exchanges
    assert whole / 4 < runs["dense"]["bytes"]["training"] < 1.2 * whole
    assert runs["elastic"]["bytes"]["training"] < whole / 20


def test_strategies_move_the_whole_model_in_each_step(quick):
    _, results, _ = quick
    for strategy, times in (("pss", 2), ("mwms", 1)):
        seen = results["strategies"][strategy]["mlp"]
        per_step = seen["bytes"] / seen["steps"] / seen["workers"]
        assert per_step == pytest.approx(times * 4 * seen["parameters"], rel=0.25)
        assert seen["seconds"] > 0


def test_speed_is_measured_at_both_links_beside_silent_workers_and_both_strategies(quick):
    _, results, _ = quick
    assert [speed["link"] for speed in results["speed"]] == ["100mbit", "1gbit"]
    for speed in results["speed"]:
        assert len(speed["ours"]) == len(speed["silent"]) == train_plan.QUICK.speed_rounds
        assert set(speed["peers"]) == {"pss", "mwms"}


def test_curves_have_every_evaluation_and_are_drawn(quick):
    printed, results, plot = quick
    for side in results["learning"]["mlp"].values():
        assert len(side["runs"][0]["curve"]) == train_plan.QUICK.evaluations
    assert f"The curves are in {plot}" in " ".join(printed.split())
    with Image.open(plot) as image:
        assert image.format == "PNG"
        assert image.width >= 1000


def test_missing_ops_say_what_to_run(bench, monkeypatch, tmp_path):
    monkeypatch.setenv("TL_TF_LIBRARY", str(tmp_path / "nothing.so"))
    ran = bench("train.py", "--quick", f"--json={tmp_path / 'no.json'}")
    assert ran.returncode == 1
    assert "make bench-train" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_help_explains_the_options(bench):
    ran = bench("train.py", "--help")
    assert ran.returncode == 0
    for option in ("--quick", "--only", "--json", "--plot"):
        assert option in ran.stdout


def side(policy: str, values: list[float], task: str = "cnn", workers: int = 4) -> Side:
    outcome = Outcome(Spec(task, policy, workers, 0.1, 10 * len(values)))
    outcome.curve = [Point(10 * n, 2.0 * n, value) for n, value in enumerate(values, 1)]
    return Side(policy, [outcome], [])


def test_steps_to_accuracy_compares_when_one_workers_plateau_is_reached():
    one = side("one", [70, 80, 85, 88, 90, 90], workers=1)
    assert train_results.goal(one) == pytest.approx(90 - train_results.POINTS)
    assert train_results.to_accuracy(one, side("local", [80, 90, 91]), "steps") == 50 / 20
    assert train_results.to_accuracy(one, side("local", [80, 90, 91]), "seconds") == 10 / 4
    assert train_results.to_accuracy(one, side("local", [80, 85, 89]), "steps") is None


def test_fewer_bits_per_character_are_better():
    one = side("one", [4, 3, 2.5, 2.5], "lstm", 1)
    assert train_results.to_accuracy(one, side("local", [3, 2.4], "lstm"), "steps") == 30 / 20
    assert train_results.behind(side("elastic", [3, 2.525], "lstm"), 2.5) == pytest.approx(1)
    assert train_results.behind(side("elastic", [80, 88]), 88.5) == pytest.approx(0.5)


def test_a_row_of_several_models_has_the_worst_ones_value():
    least = train_results.Ratio("bytes", "x", 50)
    assert train_results.Worst(least, [""], "", [120, 40, 60]).value == 40
    most = train_results.Ratio("behind", "x", 0.5, at_most=True)
    assert train_results.Worst(most, [""], "", [-1, 0.7]).missed


def test_the_learning_rate_grows_and_falls_to_zero():
    rates = [train_worker.learning_rate(1.0, step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.2)
    assert max(rates) == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(1 / 95)
    assert rates[5:] == sorted(rates[5:], reverse=True)


def test_workers_have_parts_of_the_data_and_see_all_of_it_in_an_epoch():
    task = TASKS["lstm"]
    one, other = (Batches(task, rank, 2, seed=3) for rank in (0, 1))
    assert next(one).shape == (task.batch, text().train.shape[1])
    assert not np.array_equal(next(one), next(other))
    again = Batches(task, 1, 2, seed=3)
    next(again)
    assert np.array_equal(next(again), next(other))


def test_small_tensors_come_last_in_the_centre():
    sizes = [3, 4096, 2, 2049]
    wire = np.concatenate([np.full(4096, 1), np.full(2049, 3), np.full(3, 0), np.full(2, 2)])
    tensors = np.split(train_centre.to_tensors(wire, sizes), np.cumsum(sizes)[:-1])
    assert [set(tensor) for tensor in tensors] == [{0}, {1}, {2}, {3}]


def test_what_is_no_snapshot_is_an_error():
    with pytest.raises(BenchmarkError, match="does not begin as one"):
        train_centre.parse(b"nothing at all, but long enough for a header")
