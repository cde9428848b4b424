"""CaffeTrainer and CaffeModel with a real Caffe in a real Spark: local[2], this process drives."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import caffe_stock
import numpy as np
import pytest
import tf_library
from cluster.wait import until
from python.caffe import nets
from tensorlightning import datasets
from tensorlightning.caffe import Solver, read_caffemodel
from tensorlightning.spark import CaffeModel, CaffeTrainer, TrainingError, caffe_trainer
from tensorlightning.spark.caffe_model import Predictor
from tensorlightning.spark.caffe_nets import Net

LENET = tf_library.ROOT / "examples/caffe_lenet"
ROW = (nets.CHANNELS, nets.HEIGHT, nets.WIDTH)
SOLVER = f"{nets.SOLVER}\n# As for the stock binary.\nmax_iter: 30 display: 10 test_interval: 5"
DATA = """
layer { name: "data" type: "Data" top: "data" top: "label" %s
  data_param { source: "nowhere" backend: LMDB batch_size: 8 } }
"""
NET = DATA % "" + nets.DENSE_LAYERS + nets.END


@pytest.fixture
def caffe(spark, monkeypatch) -> Path:
    """The driver library, for this process and for tasks."""
    driver = str(caffe_stock.driver())
    monkeypatch.setenv("TL_CAFFE_DRIVER", driver)
    monkeypatch.setitem(spark.sparkContext.environment, "TL_CAFFE_DRIVER", driver)
    return Path(driver)


pytestmark = pytest.mark.usefixtures("caffe")


def trainer(solver=SOLVER, net=NET, **options) -> CaffeTrainer:
    defaults = {"workers": 2, "epochs": 8, "features": "image", "shape": ROW, "progress": False}
    return CaffeTrainer(solver, net, **defaults | options)


def frame(spark, count=240, partitions=2, labels=None):
    images, given = nets.examples(count)
    given = given if labels is None else labels
    rows = [
        (n, image.tobytes(), int(label))
        for n, (image, label) in enumerate(zip(images, given, strict=True))
    ]
    schema = "number int, image binary, label int"
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, partitions), schema)


def accuracy(predicted) -> float:
    rows = predicted.select("prediction", "label").collect()
    return float(np.mean([np.argmax(row.prediction) == row.label for row in rows]))


@pytest.fixture(scope="module")
def untrained(tmp_path_factory) -> CaffeModel:
    """A fitted model without a fit."""
    net = Net(NET).from_memory(ROW)
    file = tmp_path_factory.mktemp("untrained") / "a.caffemodel"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TL_CAFFE_DRIVER", str(caffe_stock.driver()))
        with Solver(nets.SOLVER, net.text) as solver:
            solver.snapshot(file)
    predictor = Predictor(net.text, file.read_bytes(), net.test.transform)
    names = {"features": "image", "prediction": "prediction"}
    return CaffeModel(predictor, row_shape=ROW, blob=net.blob, **names)


# ---- Training. -----------------------------------------------------------------------------------


def test_all_workers_learn_one_model(spark, tmp_path):
    data = frame(spark)
    fitted = trainer(period=2, record=tmp_path / "record.json").fit(data)
    assert accuracy(fitted.transform(data)) > 0.9
    assert len(fitted.history["loss"]) == 8
    assert fitted.history["loss"][-1] < fitted.history["loss"][0] / 2
    assert [worker["samples"] for worker in fitted.workers] == [960, 960]
    assert [worker["steps"] for worker in fitted.workers] == [120, 120]
    assert sorted(worker["rank"] for worker in fitted.workers) == [0, 1]
    assert all(worker["bytes"] > 1000 for worker in fitted.workers)
    assert fitted.record["settings"] == {"period": 2}
    assert (tmp_path / "record.json").exists()

    file = tmp_path / "a.caffemodel"
    file.write_bytes(fitted.caffemodel)
    for layer, arrays in read_caffemodel(file).items():
        for array, same in zip(arrays, fitted.weights[layer], strict=True):
            assert np.array_equal(array, same)


def test_lenets_own_files_learn_clothes(spark):
    (x, y), _ = datasets.fashion_mnist()
    rows = [(x[n].tobytes(), int(y[n])) for n in range(1600)]
    data = spark.createDataFrame(rows, "image binary, label tinyint")
    options = {"epochs": 2, "features": "image", "shape": (1, 28, 28), "progress": False}
    # Neither is there: they say so of the folder in which Caffe would be started.
    fitted = CaffeTrainer(LENET / "solver.prototxt", workers=2, **options).fit(data)
    assert {name: [a.shape for a in arrays] for name, arrays in fitted.weights.items()} == {
        "conv1": [(20, 1, 5, 5), (20,)],
        "conv2": [(50, 20, 5, 5), (50,)],
        "ip1": [(500, 800), (500,)],
        "ip2": [(10, 500), (10,)],
    }
    (x, y), (rows, labels) = datasets.fashion_mnist()
    scores = fitted.predict(rows[:500])
    assert np.mean(np.argmax(scores, axis=1) == labels[:500]) > 0.4


def test_without_epochs_max_iter_counts_for_each_worker(spark):
    fitted = trainer(epochs=None).fit(frame(spark, 100))
    assert [worker["steps"] for worker in fitted.workers] == [30, 30]
    assert [worker["samples"] for worker in fitted.workers] == [240, 240]
    assert len(fitted.history["loss"]) == 5  # 240 of 50 rows.


def test_batches_go_on_over_the_end_of_an_epoch_and_the_last_is_filled(spark):
    data = frame(spark, 21, partitions=1)
    (worker,) = trainer(workers=None, epochs=3).fit(data).workers
    assert (worker["steps"], worker["samples"]) == (8, 63)  # 63 of 64 places.
    (worker,) = trainer(workers=None, epochs=1).fit(frame(spark, 3, partitions=1)).workers
    assert (worker["steps"], worker["samples"]) == (1, 3)


def test_iter_size_is_so_many_batches_in_a_step(spark):
    fitted = trainer(f"{SOLVER} iter_size: 3", epochs=1).fit(frame(spark))
    assert [worker["steps"] for worker in fitted.workers] == [5, 5]


def test_partitions_without_rows_have_no_worker(spark):
    data = frame(spark, 40, partitions=2).where("number < 20")
    fitted = trainer(workers=None, epochs=1).fit(data)
    assert [worker["rank"] for worker in fitted.workers] == [0, None]
    with pytest.raises(ValueError, match="not a single row"):
        trainer(workers=None).fit(data.where("number < 0"))


def test_a_net_without_labels_needs_no_such_column(spark):
    """It learns to be its own input."""
    layers = """
layer { name: "all" type: "InnerProduct" bottom: "data" top: "all"
  inner_product_param { num_output: 60 weight_filler { type: "xavier" } } }
layer { name: "flat" type: "Flatten" bottom: "data" top: "flat" }
layer { name: "loss" type: "EuclideanLoss" bottom: "all" bottom: "flat" top: "loss" }
"""
    net = (DATA % "").replace('top: "label"', "") + layers
    slow = SOLVER.replace("base_lr: 0.05", "base_lr: 0.001")
    fitted = trainer(slow, net, epochs=2).fit(frame(spark).select("image"))
    assert fitted.history["loss"][1] < fitted.history["loss"][0]
    assert fitted.blob == "all"


def test_what_transform_param_says_is_done_to_rows(spark):
    """A thousandth of the rows, scaled a thousand times, is the rows."""
    images, labels = nets.examples(80)
    small = (images / 1000).reshape(80, -1).tolist()
    rows = [(image, int(label)) for image, label in zip(small, labels, strict=True)]
    schema = "image array<float>, label int"
    data = spark.createDataFrame(spark.sparkContext.parallelize(rows, 1), schema)
    net = NET.replace(DATA % "", DATA % "transform_param { scale: 1000 }")
    fitted = trainer(net=net, workers=None).fit(data)
    assert accuracy(fitted.transform(data)) > 0.9


def test_rows_may_say_their_shape_themselves(spark):
    rows = [(image.tolist(), int(label)) for image, label in zip(*nets.examples(40), strict=True)]
    schema = "image array<array<array<float>>>, label int"
    data = spark.createDataFrame(spark.sparkContext.parallelize(rows, 1), schema)
    fitted = trainer(workers=None, epochs=1, shape=None).fit(data)
    assert fitted.weights["hidden"][0].shape == (16, 60)


def test_training_may_begin_with_a_caffemodel(spark, untrained, tmp_path):
    file = tmp_path / "begin.caffemodel"
    file.write_bytes(untrained.caffemodel)
    still = SOLVER.replace("base_lr: 0.05", "base_lr: 0").replace("seed: 3", "seed: 8")
    fitted = trainer(still, weights=file, epochs=1).fit(frame(spark, 32))
    for layer, arrays in untrained.weights.items():
        for array, same in zip(arrays, fitted.weights[layer], strict=True):
            np.testing.assert_allclose(array, same, atol=1e-6)


# ---- Trouble. ------------------------------------------------------------------------------------


def test_a_killed_worker_is_started_again_and_goes_on(spark, monkeypatch):
    jobs = []

    class Noted(caffe_trainer.job.Job):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            jobs.append(self)

    def kill() -> None:
        assert until(lambda: jobs and 1 in jobs[0].places.by_partition, 60)
        place = jobs[0].places.by_partition[1]
        assert until(lambda: place.epochs > 1, 60)
        os.kill(place.pid, signal.SIGKILL)

    monkeypatch.setattr(caffe_trainer.job, "Job", Noted)
    data = frame(spark)
    with ThreadPoolExecutor(1) as thread:
        killing = thread.submit(kill)
        fitted = trainer(epochs=600, workers=None).fit(data)
        killing.result()
    attempts = {worker["partition"]: worker["attempts"] for worker in fitted.record["workers"]}
    assert attempts == {0: 1, 1: 2}
    # What the first attempt did after its last word does not count.
    assert [worker["samples"] for worker in fitted.workers] == [72_000, 72_000]
    assert accuracy(fitted.transform(data)) > 0.9


def test_a_worker_whose_rows_break_off_is_started_again(spark, tmp_path):
    """Whoever makes the rows of partition 1 dies once, in the middle of them."""
    marker = tmp_path / "died"

    def deadly(batches):
        from pyspark import TaskContext

        for number, batch in enumerate(batches):
            first = TaskContext.get().partitionId() == 1 and number == 2
            if first and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    data = frame(spark)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 20)
    try:
        fitted = trainer(workers=None, period=2).fit(data.mapInArrow(deadly, data.schema))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert marker.exists()
    assert accuracy(fitted.transform(data)) > 0.9
    assert [worker["samples"] for worker in fitted.workers] == [960, 960]


def test_a_training_goes_on_from_its_snapshots(spark, tmp_path):
    data = frame(spark)
    folder = tmp_path / "snapshots"
    first = trainer(snapshots=folder, epochs=4).fit(data)
    again = trainer(epochs=5).fit(data, resume=folder)
    assert [worker["samples"] for worker in again.workers] == [120, 120]
    assert again.history["loss"][0] < first.history["loss"][1]
    with pytest.raises(ValueError, match="resume="):
        trainer().fit(data, resume=tmp_path / "none")


def test_a_label_that_the_net_has_not_ends_the_training(spark):
    data = frame(spark, 32, labels=[7] * 32)
    with pytest.raises(TrainingError, match=r"the net has classes 0 to 2"):
        trainer().fit(data)


def test_what_caffe_does_not_like_is_said_before_anything_runs(spark):
    data = frame(spark, 8)
    for options, what in [
        ({"net": NET.replace("InnerProduct", "OuterProduct")}, "Unknown layer type: OuterProduct"),
        ({"solver": "base_lr: x"}, "base_lr"),
        ({"shape": (2, 6, 7)}, None),
        ({"net": NET.replace("batch_size: 8", "")}, "no batch_size"),
        ({"blob": "nothing"}, "no blob 'nothing'"),
        ({"features": "picture"}, "no column 'picture'"),
        ({"label": "kind"}, "no column 'kind'"),
        ({"shape": None}, "shape="),
        ({"workers": 0}, "workers=0"),
        ({"policy": "gradient"}, "policy='gradient'"),
        ({"density": 3}, "density"),
        ({"solver": "solver.none"}, None),
    ]:
        with pytest.raises((ValueError, FileNotFoundError, TrainingError), match=what):
            trainer(**options).fit(data)


# ---- The fitted model. ---------------------------------------------------------------------------


def test_predictions_are_a_column(spark, untrained):
    data = frame(spark, 50, partitions=3)
    said = untrained.transform(data)
    assert said.columns == ["number", "image", "label", "prediction"]
    assert said.schema["prediction"].dataType.simpleString() == "array<float>"
    rows = sorted(said.collect())
    expected = untrained.predict(nets.examples(50)[0])
    np.testing.assert_allclose([row.prediction for row in rows], expected, rtol=1e-5)
    with pytest.raises(ValueError, match="already"):
        untrained.transform(said)
    with pytest.raises(ValueError, match="no column 'image'"):
        untrained.transform(data.drop("image"))


def test_other_blobs_predict_too(spark, untrained):
    said = untrained.transform(frame(spark, 4), blob="hidden", prediction="inner").collect()
    assert {len(row.inner) for row in said} == {16}
    with pytest.raises(KeyError, match="no blob 'x'"):
        untrained.transform(frame(spark, 4), blob="x")


def test_saves_and_loads(spark, untrained, tmp_path):
    untrained.save(tmp_path / "model")
    loaded = CaffeModel.load(tmp_path / "model")
    assert loaded.caffemodel == untrained.caffemodel
    rows, _ = nets.examples(5)
    assert np.array_equal(loaded.predict(rows), untrained.predict(rows))
    with pytest.raises(FileExistsError):
        untrained.save(tmp_path / "model")
    (tmp_path / "model/model.json").unlink()
    with pytest.raises(ValueError, match="there is no CaffeModel in"):
        CaffeModel.load(tmp_path / "model")
