"""rdd.mapPartitions(tl.spark.trainer(...)): rows in, one record per partition out."""

import importlib.util
import json
import os
import shutil
import socket

import numpy as np
import pytest
import tensorlightning as tl
from python.spark import builders
from tensorlightning import spark as tls
from tensorlightning.spark import aggregation

ROWS = 2048
EPOCHS = 3


@pytest.fixture
def rows() -> list[tuple[np.ndarray, int]]:
    x, y = builders.blobs(ROWS)
    return [(features, int(label)) for features, label in zip(x, y, strict=True)]


def accuracy(model) -> float:
    x, y = builders.blobs(1000, seed=6)
    return float(np.mean(np.argmax(model.predict(x, verbose=0), axis=1) == y))


def train_model(weights: list[np.ndarray]):
    model = builders.classifier()
    model.set_weights(weights)
    return model


def test_each_partition_trains_on_its_rows_and_yields_one_record(spark, rows):
    with tls.trainer(builders.classifier, epochs=EPOCHS, batch_size=32) as train:
        records = spark.sparkContext.parallelize(rows, 2).mapPartitions(train).collect()
        model = train.model()
        record = train.record()
    assert sorted(each["rank"] for each in records) == [0, 1]
    assert sorted(each["partition"] for each in records) == [0, 1]
    assert sum(each["samples"] for each in records) == ROWS * EPOCHS
    assert sum(each["steps"] for each in records) == ROWS * EPOCHS // 32
    for each in records:
        assert each["bytes"] > 0
        assert each["loss"] == json.loads(each["history"])["loss"][-1]
        assert len(json.loads(each["history"])["loss"]) == EPOCHS
    assert record["samples"] == ROWS * EPOCHS
    assert accuracy(model) > 0.9


def test_rows_may_be_dictionaries_and_partitions_uneven_or_empty(spark, rows):
    named = [{"x": x, "kind": y} for x, y in rows]
    parts = [named[:1500], [], named[1500:1505]]
    rdd = spark.sparkContext.parallelize(parts, 3).mapPartitions(lambda part: next(part))
    with tls.trainer(builders.classifier, features="x", label="kind", epochs=2) as train:
        records = rdd.mapPartitions(train).collect()
        assert accuracy(train.model()) > 0.9
    assert [each["samples"] for each in records] == [3000, 0, 10]
    assert records[1]["rank"] is None


def test_there_may_be_more_partitions_than_slots(spark, rows):
    """Later ones begin when earlier ones have ended, with what those have learned."""
    with tls.trainer(builders.classifier, batch_size=16) as train:
        records = spark.sparkContext.parallelize(rows, 5).mapPartitions(train).collect()
        assert accuracy(train.model()) > 0.9
    assert sorted(each["rank"] for each in records) == [0, 1, 2, 3, 4]
    assert sum(each["samples"] for each in records) == ROWS


def test_one_worker_after_the_other_is_one_training(spark, rows):
    """Nobody is there at the same time, and still nothing of what was learned is lost."""
    with tls.trainer(builders.classifier, density=0.01) as train:
        for parts in ([rows[:1024]], [[], rows[1024:]]):
            rdd = spark.sparkContext.parallelize(parts, len(parts))
            rdd.mapPartitions(lambda part: next(part)).mapPartitions(train).collect()
            # To look at it between two does no harm.
            model = train.model()
        assert train.record()["samples"] == ROWS
    assert accuracy(model) > 0.9


def test_a_model_without_an_input_is_built_from_what_workers_have_seen(spark, rows):
    with tls.trainer(builders.shapeless, epochs=EPOCHS) as train:
        with pytest.raises(RuntimeError, match="nothing has been trained yet"):
            train.model()
        spark.sparkContext.parallelize(rows, 2).mapPartitions(train).collect()
        assert accuracy(train.model()) > 0.9


def test_settings_of_another_job_do_not_keep_the_driver_from_the_model(
    spark, rows, monkeypatch, tmp_path
):
    (tmp_path / "secret").write_text("that of quite another aggregator")
    monkeypatch.setenv("TL_SECRET_FILE", str(tmp_path / "secret"))
    monkeypatch.setenv("TL_JOB", "another")
    with tls.trainer(builders.classifier) as train:
        spark.sparkContext.parallelize(rows, 1).mapPartitions(train).collect()
        assert accuracy(train.model()) > 0.9
    assert os.environ["TL_JOB"] == "another"


def test_a_partition_that_is_asked_for_again_is_not_trained_again(spark, rows):
    with tls.trainer(builders.classifier, batch_size=64) as train:
        trained = spark.sparkContext.parallelize(rows, 2).mapPartitions(train)
        first, second = trained.collect(), trained.collect()
        assert train.record()["samples"] == ROWS
    assert first == second


def test_an_aggregator_may_live_in_a_task(spark, rows):
    with tls.trainer(builders.classifier, epochs=2, aggregator="task") as train:
        records = spark.sparkContext.parallelize(rows, 1).mapPartitions(train).collect()
        assert accuracy(train.model()) > 0.9
    assert records[0]["samples"] == 2 * ROWS


def test_a_folder_of_snapshots_is_of_one_training(spark, rows, tmp_path):
    rdd = spark.sparkContext.parallelize(rows[:256], 1)
    with tls.trainer(builders.classifier, snapshots=str(tmp_path)) as train:
        rdd.mapPartitions(train).collect()
    with pytest.raises(ValueError, match="resume="):
        tls.trainer(builders.classifier, snapshots=str(tmp_path))
    with pytest.raises(ValueError, match=r"1\.00 epochs are done, .* epochs=2 adds"):
        tls.trainer(builders.classifier, resume=str(tmp_path))
    with pytest.raises(ValueError, match="has those of another training"):
        folders = {"resume": str(tmp_path), "snapshots": str(tmp_path / "second")}
        shutil.copytree(tmp_path, tmp_path / "second")
        tls.trainer(builders.classifier, epochs=2, **folders)
    with pytest.raises(ValueError, match=r"resume=.* aggregator='task'"):
        tls.trainer(builders.classifier, epochs=2, resume=str(tmp_path), aggregator="task")
    for snapshot in tmp_path.glob("snapshot-*.tls"):
        snapshot.unlink()
    with pytest.raises(ValueError, match="no snapshot in it"):
        tls.trainer(builders.classifier, epochs=2, resume=str(tmp_path))


def test_a_learning_rate_that_falls_goes_on_where_it_was(spark, rows, tmp_path):
    """After the first epoch it is zero: a second one changes nothing."""
    rdd = spark.sparkContext.parallelize(rows, 1)
    weights = []
    for epochs, folder in ((1, {"snapshots": tmp_path}), (2, {"resume": tmp_path})):
        folder = {name: str(path) for name, path in folder.items()}
        with tls.trainer(builders.falling_rate, epochs=epochs, **folder) as train:
            rdd.mapPartitions(train).collect()
            weights.append(train.model().get_weights())
    for before, after in zip(*weights, strict=True):
        assert np.array_equal(before, after)
    assert accuracy(train_model(weights[0])) > 0.9


def test_a_row_of_the_wrong_shape_is_shown(spark, rows):
    bad = [*rows[:100], (np.arange(3.0), 1), *rows[100:200]]
    train = tls.trainer(builders.classifier, batch_size=16)
    rdd = spark.sparkContext.parallelize(bad, 1).mapPartitions(train)
    with (
        train,
        pytest.raises(Exception, match=r"row 100 .*expected 16 .*found 3 .*0\., 1"),
    ):
        rdd.collect()


def test_settings_are_checked_in_the_driver(spark):
    with pytest.raises(TypeError, match="the function that makes"):
        tls.trainer(builders.classifier())
    with pytest.raises(TypeError, match="there is no setting 'perriod'"):
        tls.trainer(builders.classifier, perriod=3)
    with pytest.raises(ValueError, match="waits for everybody in each step"):
        tls.trainer(builders.classifier, policy="gradient")
    with pytest.raises(ValueError, match=r"its run\.json can't be read"):
        tls.trainer(builders.classifier, resume="/does/not/exist")


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"epochs": None},
        {"batch_size": 2.5},
        {"batch_size": 0},
        {"workers": -1},
        {"seed": -1},
        {"hang_seconds": 0},
        {"hang_seconds": 0.5},
        {"stall_seconds": "long"},
        {"aggregator": "drvier"},
        {"record": "/does/not/exist"},
    ],
    ids=str,
)
def test_options_are_checked_in_the_driver(spark, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        tls.trainer(builders.classifier, **wrong)


def test_an_aggregator_that_does_not_run_is_noticed_at_once(spark, monkeypatch):
    monkeypatch.setenv("TL_SECRET", "a secret that somebody has told us")
    with pytest.raises(RuntimeError, match=r"aggregator='127\.0\.0\.1:1' can't be reached"):
        tls.trainer(builders.classifier, aggregator="127.0.0.1:1")


def test_a_port_that_is_taken_is_named(spark):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port={port - 1}: the next one .*in use"):
            tls.trainer(builders.classifier, port=port - 1)


def test_a_model_that_is_another_in_the_driver_is_an_error_that_says_so(spark, rows):
    driver = os.getpid()

    def build():
        import keras

        name = "here" if os.getpid() == driver else "there"
        layers = [keras.Input((builders.FEATURES,)), keras.layers.Dense(4, "softmax", name=name)]
        model = keras.Sequential(layers)
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model

    with tls.trainer(build) as train:
        spark.sparkContext.parallelize(rows, 1).mapPartitions(train).collect()
        with pytest.raises(tls.TrainingError, match=r"must make a new model.*there"):
            train.model()


def test_no_module_hides_what_people_call():
    for name in tls.__all__:
        assert importlib.util.find_spec(f"tensorlightning.spark.{name}") is None


def test_any_function_runs_on_every_worker(spark):
    def train(seed: int) -> tuple:
        import os

        import tensorlightning as tl
        from python.spark import builders

        x, y = builders.blobs(512, seed)
        model = builders.classifier()
        model.fit(tl.shard(x), tl.shard(y), epochs=4, verbose=0, callbacks=[tl.Elastic(period=2)])
        return tl.rank(), tl.size(), os.getpid(), model.get_weights()

    results = tls.run(train, args=(7,), num_proc=2, progress=False)
    assert [result[:2] for result in results] == [(0, 2), (1, 2)]
    assert results[0][2] != results[1][2]
    for one, other in zip(results[0][3], results[1][3], strict=True):
        assert np.array_equal(one, other), "both end with the centre"
    assert tl.size() == 1, "the driver is none of them"


def test_a_run_says_nothing_of_the_one_before(spark, tmp_path):
    def train() -> None:
        from python.spark import builders

        x, y = builders.blobs(128)
        builders.classifier().fit(x, y, verbose=0, callbacks=[tl.Elastic()])

    steps = []
    for work in (train, lambda: None):
        tls.run(work, num_proc=1, progress=False, record=str(tmp_path / "run.json"))
        steps.append(json.loads((tmp_path / "run.json").read_text())["steps"])
    assert steps == [4, 0]


def test_too_few_slots_are_an_error_that_says_so(spark):
    with pytest.raises(ValueError, match=r"num_proc=3.* has 2 slots"):
        tls.run(lambda: None, num_proc=3, progress=False)
    with pytest.raises(ValueError, match=r"num_proc=2.* has 2 slots, one of them"):
        tls.run(lambda: None, num_proc=2, progress=False, aggregator="task")
    with pytest.raises(ValueError, match="num_proc=0"):
        tls.run(lambda: None, num_proc=0, progress=False)
    with pytest.raises(ValueError, match="only one here"):
        aggregation.check("task", slots=1)


def test_what_a_function_raises_is_the_error_of_the_run(spark):
    def fail() -> None:
        raise KeyError("nobody knows")

    with pytest.raises(tls.TrainingError, match=r"rank 0 on .*KeyError: 'nobody knows'"):
        tls.run(fail, num_proc=1, progress=False)
