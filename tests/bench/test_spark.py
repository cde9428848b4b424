"""That the benchmark of Spark measures everything; how good anything is does not matter here."""

import json
import math

import numpy as np
import pytest
import spark
import spark_data
import spark_peer
import spark_plan
import spark_results
import tf_library
from spark_cluster import Fitted
from spark_results import Results

OF_ELEPHAS = {
    "bytes_vs_elephas_sync": 50,
    "bytes_vs_elephas_async": 50,
    "bytes_vs_elephas_async_epoch": 50,
    "bytes_vs_elephas_from_driver": 50,
    "speed_vs_elephas_sync": 2,
    "speed_vs_elephas_async": 2,
    "speed_vs_elephas_async_epoch": 2,
    "speed_vs_elephas_from_driver": 2,
    "points_behind_elephas_sync": 0.5,
    "points_behind_elephas_async": 0.5,
    "points_behind_elephas_async_epoch": 0.5,
    "points_behind_elephas_from_driver": 0.5,
}
TARGETS = OF_ELEPHAS | {"feed_ratio": 0.8}
QUICK = spark_plan.QUICK
MODEL_BYTES = 4 * 108_874


@pytest.fixture(scope="module")
def quick(bench, tmp_path_factory):
    """What a quick run has printed, and its JSON."""
    path = tmp_path_factory.mktemp("spark") / "spark.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TL_TF_LIBRARY", str(tf_library.library()))
        patch.setenv("TL_PROGRAMS", str(tf_library.aggregator().parent))
        ran = bench("spark.py", "--quick", f"--json={path}")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, json.loads(path.read_text())


@pytest.fixture
def with_elephas(quick):
    if reason := quick[1].get("elephas_skipped"):
        pytest.skip(reason)
    return quick


def test_every_target_has_a_finite_ratio_and_a_row(with_elephas):
    printed, results = with_elephas
    assert results["targets"] == TARGETS
    for name in TARGETS:
        assert math.isfinite(results["ratios"][name])
        assert any(line.startswith(f"  {name} ") for line in printed.splitlines())
    assert ("Targets missed: " in printed) or ("Every target is met." in printed)


def test_all_sides_train_on_the_same_samples_with_the_same_seeds(with_elephas):
    _, results = with_elephas
    assert list(results["runs"]) == [*spark_plan.OUR_SIDES, *spark_plan.ELEPHAS_SIDES]
    for (run,) in results["runs"].values():
        assert (run["samples"], run["seed"]) == (QUICK.rows * QUICK.epochs, 1)
        assert run["seconds"] > 0
        assert 10 < run["accuracy"] < 100


def test_bytes_are_those_of_the_interfaces(with_elephas):
    _, results = with_elephas
    moved = {side: run["bytes"] for side, (run,) in results["runs"].items()}
    # The first worker brings the model, and each gets it; in the end both leave it in 8 bits.
    assert 3.5 * MODEL_BYTES < moved["silent"] < 5 * MODEL_BYTES
    assert moved["silent"] < moved["ours"] < moved["ours_often"] < 9 * MODEL_BYTES
    for side in ("sync", "async_epoch"):
        averaged = 4 * MODEL_BYTES * QUICK.epochs
        assert averaged < moved[side] < averaged + 4 * MODEL_BYTES
    steps = QUICK.steps(1, spark_plan.SIDES["async_batch"].batch)
    assert moved["async_batch"] == pytest.approx(2 * MODEL_BYTES * steps, rel=0.25)
    rows = QUICK.rows * spark_data.PIXELS
    assert moved["ours_from_driver"] - moved["ours"] > 0.9 * rows
    assert moved["sync_from_driver"] - moved["sync"] > 0.9 * rows * QUICK.epochs


def test_feeding_is_measured_in_turns(quick):
    printed, results = quick
    rates = results["feeding_rows_per_s"]
    assert list(rates) == ["bare", "feed", "spilling"]
    assert all(len(by_round) == QUICK.feed_rounds for by_round in rates.values())
    assert all(rate > 0 for by_round in rates.values() for rate in by_round)
    assert any(line.startswith("  feed_ratio ") for line in printed.splitlines())


def test_without_elephas_a_reason_is_said_and_feeding_is_still_measured():
    results = Results(feeding={"bare": [2.0], "feed": [1.0], "spilling": [1.0]}, skipped="No pip.")
    results.add(fitted("ours", 80.0))
    shown = spark_results.rows(results)
    assert [row.ratio.name for row in shown] == ["feed_ratio", "feed_ratio_spilling"]
    facts = {
        "seeds": 1,
        "samples": 1,
        "cores": 2,
        "cpu": "",
        "congestion_control": "",
        "load_average": [0.0],
        "quick": True,
        "free_cores": 2.0,
    }
    assert "Nothing of elephas was measured. No pip." in spark.remarks(results, shown, facts)
    assert spark_results.to_json(results, shown, facts)["elephas_skipped"] == "No pip."


def test_packages_that_can_not_be_had_are_a_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(spark_peer.PeerMissingError, match=r"can't be installed: .*blinker"):
        spark_peer.python()
    assert not list(tmp_path.glob("tensorlightning/*/.complete"))


def fitted(side: str, accuracy: float, bytes_moved: int = 100, seconds: float = 1.0) -> Fitted:
    return Fitted(side, 1, 100, seconds, bytes_moved, accuracy)


def test_bytes_speed_and_accuracy_are_compared_with_each_mode_of_elephas():
    results = Results()
    for one in (
        fitted("ours", 88.0, bytes_moved=10, seconds=1.0),
        fitted("ours_often", 88.5, bytes_moved=20, seconds=2.0),
        fitted("sync", 87.0, bytes_moved=500, seconds=4.0),
        fitted("async_batch", 89.25, bytes_moved=10_000, seconds=10.0),
        fitted("silent", 80.0, bytes_moved=5, seconds=0.5),
    ):
        results.add(one)
    by_name = {row.ratio.name: row for row in spark_results.rows(results)}
    assert {name: row.value for name, row in by_name.items()} == pytest.approx(
        {
            "bytes_vs_elephas_sync": 50,
            "bytes_vs_elephas_async": 500,
            "limit_bytes_vs_elephas_sync": 100,
            "limit_speed_vs_elephas_sync": 8,
            "speed_vs_elephas_sync": 4,
            "speed_vs_elephas_async": 5,
            "points_behind_elephas_sync": -1,
            "points_behind_elephas_async": 0.75,
        }
    )
    missed = [name for name, row in by_name.items() if row.missed]
    assert missed == ["points_behind_elephas_async"]


def test_rows_are_whole_images_and_each_worker_has_a_file(tmp_path):
    import pyarrow.parquet as pq

    folder = tmp_path / "rows"
    spark_data.write_parquet(folder, 101)
    tables = [pq.read_table(path) for path in sorted(folder.iterdir())]
    assert [len(table) for table in tables] == [51, 50]
    images, labels = spark_data.training(101)
    first = np.frombuffer(tables[1]["image"][0].as_py(), np.uint8)
    assert np.array_equal(first, images[1])
    assert tables[1]["label"][0].as_py() == labels[1]


def test_missing_ops_say_what_to_run(fails, monkeypatch, tmp_path):
    monkeypatch.setenv("TL_TF_LIBRARY", str(tmp_path / "nothing.so"))
    assert "make bench-spark" in fails("spark.py", "--quick")


def test_help_explains_the_options(bench):
    ran = bench("spark.py", "--help")
    assert ran.returncode == 0
    for option in ("--quick", "--rounds", "--json"):
        assert option in ran.stdout
