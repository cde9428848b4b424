"""Saving and loading of ElasticTrainer and ElasticModel, alone and in pipelines."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import SQLTransformer
from pyspark.sql import DataFrameWriter
from python.spark import builders
from python.spark.conftest import variables
from tensorlightning.spark import ElasticModel, ElasticTrainer, keras_models, persistence
from tensorlightning.spark.persistence import LoadError

WORKERS = [
    {"partition": 0, "rank": 1, "samples": 30, "history": {"loss": [4.0, 2.0]}},
    # This one was lost in its first epoch, and told of the second only.
    {"partition": 1, "rank": 0, "samples": 10, "history": {"loss": [1.0]}},
    {"partition": 2, "rank": None, "samples": 0, "history": {}},
]


def fitted(build_model=builders.classifier, workers=WORKERS) -> ElasticModel:
    model = build_model()
    x, _ = builders.blobs(10)
    about = keras_models.signature(model) or keras_models.show_rows(model, [x])
    saved = keras_models.save(model, keras_models.pickled(build_model), about)
    result = ElasticModel(saved, workers, {"job": "spark-1", "samples": 40}, model)
    return result.setParams(features="features", prediction="said", batch_size=5)


@pytest.fixture
def folder(tmp_path) -> str:
    return str(tmp_path / "saved")


@pytest.fixture
def saved(spark, folder) -> str:
    """A model in a folder."""
    fitted().save(folder)
    return folder


def test_a_model_comes_back_as_it_was(spark, folder):
    before = fitted()
    before.save(folder)
    after = ElasticModel.load(folder)
    assert after.uid == before.uid
    assert after.extractParamMap() == before.extractParamMap()
    assert (after.workers, after.record) == (before.workers, before.record)
    x, y = builders.blobs(10)
    assert np.array_equal(after.model.predict(x, verbose=0), before.model.predict(x, verbose=0))
    after.model.evaluate(x, y, verbose=0)
    frame = spark.createDataFrame([(row.tolist(),) for row in x], "features array<float>")
    assert after.transform(frame).collect() == before.transform(frame).collect()


def test_history_is_the_mean_of_all_workers_by_epoch():
    assert fitted().history == {"loss": [4.0, (30 * 2 + 10 * 1) / 40]}
    assert fitted(workers=[]).history == {}


def test_a_trainer_comes_back_as_it_was(spark, folder):
    before = ElasticTrainer(
        builders.classifier, epochs=7, features=["a", "b"], label=None, density=0.25
    )
    before.save(f"file://{folder}")
    after = ElasticTrainer.load(f"file://{folder}")
    assert after.uid == before.uid
    assert after.explainParams() == before.explainParams()
    assert after.settings() == {"density": 0.25}
    assert after.getOrDefault("build_model") is builders.classifier


@pytest.mark.parametrize("build_model", [builders.strange, builders.with_lambda])
def test_models_that_keras_can_not_load_are_built_anew(spark, folder, build_model):
    before = fitted(build_model)
    before.model.set_weights([weight + 1 for weight in before.model.get_weights()])
    about = before._saved.signature
    before = ElasticModel(keras_models.save(before.model, before._saved.build_model, about))
    before.save(folder)
    after = ElasticModel.load(folder)
    x, _ = builders.blobs(10)
    expected = before.model.predict(x, verbose=0)
    assert np.allclose(after.model.predict(x, verbose=0), expected, atol=1e-6)


def test_models_of_keras_2_are_kept_too():
    keras_2 = pytest.importorskip("tf_keras")

    def build_model():
        layers = [keras_2.layers.InputLayer((16,)), keras_2.layers.Dense(4)]
        model = keras_2.Sequential(layers)
        model.compile("sgd", "mse")
        return model

    model = build_model()
    about = keras_models.signature(model)
    saved = keras_models.save(model, keras_models.pickled(build_model), about)
    assert (saved.library, about.inputs[0].shape) == ("tf_keras", (16,))
    x, _ = builders.blobs(10)
    loaded = keras_models.load(saved, to_train=True)
    assert np.array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))


def test_large_models_are_saved_in_pieces(spark, folder, monkeypatch):
    monkeypatch.setattr(persistence, "PIECE_BYTES", 1000)
    before = fitted()
    before.save(folder)
    assert len(list(Path(folder, "payload").glob("*.parquet"))) > 10
    assert ElasticModel.load(folder)._saved == before._saved


def test_pipelines_are_saved_and_loaded(spark, folder, tmp_path):
    best = "SELECT *, array_position(said, array_max(said)) - 1 AS best FROM __THIS__"
    trainer = ElasticTrainer(builders.classifier, epochs=2)
    Pipeline(stages=[trainer, SQLTransformer(statement=best)]).save(folder)
    assert Pipeline.load(folder).getStages()[0].getOrDefault("epochs") == 2
    # Models are saved in the same way as one that Pipeline.fit() returns.
    model = fitted()
    PipelineModel([model, SQLTransformer(statement=best)]).save(str(tmp_path / "model"))
    x, _ = builders.blobs(20)
    frame = spark.createDataFrame([(row.tolist(),) for row in x], "features array<float>")
    rows = PipelineModel.load(str(tmp_path / "model")).transform(frame).collect()
    assert [row.best for row in rows] == np.argmax(model.model.predict(x, verbose=0), 1).tolist()


def test_another_program_loads_what_was_saved(spark, saved, tmp_path):
    """One that has never heard of the modules of these tests."""
    program = tmp_path / "program.py"
    program.write_text(f"""
from pyspark.sql import SparkSession
from tensorlightning.spark import ElasticModel, ElasticTrainer

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
model = ElasticModel.load({saved!r})
frame = spark.createDataFrame([([0.5] * 16,)], "features array<float>")
print("said", len(model.transform(frame).first().said), model.model.count_params())
""")
    from tf_library import ROOT

    ran = subprocess.run(
        [sys.executable, str(program)],
        env=variables() | {"PYTHONPATH": str(ROOT / "python"), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert "said 4 68" in ran.stdout, ran.stdout + ran.stderr


# ---- What is wrong is said. ----------------------------------------------------------------------


def test_nothing_is_overwritten_unless_that_is_said(spark, saved):
    with pytest.raises(FileExistsError, match=r"write\(\).overwrite\(\)"):
        fitted().save(saved)
    other = fitted(workers=[])
    other.write().overwrite().save(saved)
    assert ElasticModel.load(saved).uid == other.uid


def test_a_folder_that_is_not_there_is_an_error(spark, folder):
    with pytest.raises(LoadError, match=f"no ElasticModel in {folder}.*does not exist"):
        ElasticModel.load(folder)


def test_what_was_saved_in_part_is_not_loaded(spark, saved):
    for file in Path(saved, "metadata").iterdir():
        file.unlink()
    with pytest.raises(LoadError, match="saving it was interrupted"):
        ElasticModel.load(saved)


def test_metadata_come_last(spark, folder, monkeypatch):
    def parquet(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(DataFrameWriter, "parquet", parquet)
    with pytest.raises(OSError, match="full"):
        fitted().save(folder)
    assert not Path(folder, "metadata").exists()


def test_what_is_something_else_is_not_loaded(spark, saved, tmp_path):
    with pytest.raises(LoadError, match=r"no ElasticTrainer in .*, but a ElasticModel"):
        ElasticTrainer.load(saved)
    SQLTransformer(statement="SELECT 1").save(str(tmp_path / "sql"))
    with pytest.raises(LoadError, match="but a SQLTransformer"):
        ElasticModel.load(str(tmp_path / "sql"))


def test_what_is_damaged_is_not_loaded(spark, saved):
    (metadata,) = Path(saved, "metadata").glob("part-*")
    told = json.loads(metadata.read_text())
    digest = told["payload"]["model"]
    told["payload"]["model"] = digest.replace("sha256 ", "sha256 0")
    _rewrite(metadata, told)
    with pytest.raises(LoadError, match="damaged: model is not what was saved"):
        ElasticModel.load(saved)
    for file in Path(saved, "payload").glob("*.parquet"):
        file.unlink()
    with pytest.raises(LoadError, match="damaged: its payload can't be read"):
        ElasticModel.load(saved)


def test_other_formats_are_not_guessed_at(spark, saved):
    (metadata,) = Path(saved, "metadata").glob("part-*")
    _rewrite(metadata, json.loads(metadata.read_text()) | {"format": 2})
    with pytest.raises(LoadError, match="its format is 2, and this one reads 1"):
        ElasticModel.load(saved)


def _rewrite(file: Path, told: dict) -> None:
    file.write_text(json.dumps(told) + "\n")
    # Hadoop's checksum of what it wrote.
    file.with_name(f".{file.name}.crc").unlink()
