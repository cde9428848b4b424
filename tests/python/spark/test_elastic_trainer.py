"""ElasticTrainer and ElasticModel in a real Spark: local[2], this process is the driver."""

import json

import numpy as np
import pytest
from pyspark.ml import Pipeline
from pyspark.ml.evaluation import Evaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import ParamGridBuilder, TrainValidationSplit
from pyspark.sql import functions as F  # noqa: N812
from python.spark import builders
from tensorlightning import datasets
from tensorlightning.spark import ElasticModel, ElasticTrainer, TrainingError, keras_models


def trainer(build_model=builders.classifier, **options):
    return ElasticTrainer(build_model, **{"workers": 2, "progress": False} | options)


def untrained(build_model, **options) -> ElasticModel:
    """A fitted model without a fit."""
    model = build_model()
    pickled = keras_models.pickled(build_model)
    saved = keras_models.save(model, pickled, keras_models.signature(model))
    return trainer(build_model, **options)._copyValues(ElasticModel(saved))


def points(spark, samples=600, partitions=2):
    x, y = builders.blobs(samples)
    rows = [(number, x[number].tolist(), int(y[number])) for number in range(samples)]
    schema = "number int, features array<float>, label int"
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, partitions), schema)


def accuracy(frame) -> float:
    rows = frame.select("prediction", "label").collect()
    return float(np.mean([np.argmax(row.prediction) == row.label for row in rows]))


@pytest.fixture(scope="module")
def fashion(shared_spark):
    (x, y), _ = datasets.fashion_mnist()
    rows = [(x[n].tobytes(), int(y[n])) for n in range(5000)]
    frame = shared_spark.createDataFrame(rows, "image binary, label tinyint").cache()
    yield frame.limit(4000), frame.offset(4000)
    frame.unpersist()


# ---- Training. -----------------------------------------------------------------------------------


def test_clothes_are_learned_from_binary_images(spark, fashion, tmp_path):
    train, test = fashion
    record = tmp_path / "record.json"
    fitted = trainer(
        builders.clothes, epochs=4, features="image", period=4, record=str(record)
    ).fit(train)
    assert accuracy(fitted.transform(test)) > 0.7
    # What workers have reported.
    assert [worker["partition"] for worker in fitted.workers] == [0, 1]
    assert {worker["rank"] for worker in fitted.workers} == {0, 1}
    assert sum(worker["samples"] for worker in fitted.workers) == 4 * 4000
    assert all(worker["bytes"] > 0 for worker in fitted.workers)
    assert all(len(worker["history"]["loss"]) == 4 for worker in fitted.workers)
    # And of all.
    assert set(fitted.history) == {"accuracy", "loss"}
    assert len(fitted.history["loss"]) == 4
    assert fitted.history["loss"][-1] < fitted.history["loss"][0]
    assert fitted.record["samples"] == 4 * 4000
    assert json.loads(record.read_text())["job"] == fitted.record["job"]


def test_the_keras_model_is_compiled_and_is_what_predicts(spark):
    frame = points(spark)
    fitted = trainer(epochs=2).fit(frame)
    x, y = builders.blobs(600)
    _, right = fitted.model.evaluate(x, y, verbose=0)
    assert right > 0.9
    assert accuracy(fitted.transform(frame)) == pytest.approx(right)


def test_rows_stay_where_they_are_if_there_are_as_many_partitions_as_workers(spark):
    frame = points(spark, 300).where("number < 200 or number % 10 = 0")
    assert [worker["samples"] for worker in trainer().fit(frame).workers] == [150, 60]
    spread = trainer(workers=3).fit(frame).workers
    assert len(spread) == 3
    assert max(w["samples"] for w in spread) - min(w["samples"] for w in spread) <= 3


def test_without_a_number_of_workers_there_is_one_for_each_partition(spark):
    assert len(trainer(workers=None).fit(points(spark, partitions=3)).workers) == 3


def test_an_empty_partition_has_no_worker(spark):
    fitted = trainer(epochs=2).fit(points(spark).where("number < 300"))
    assert sorted(worker["samples"] for worker in fitted.workers) == [0, 600]
    assert [worker["rank"] for worker in fitted.workers].count(None) == 1
    assert len(fitted.history["loss"]) == 2


def test_vectors_and_arrays_are_learned_alike(spark):
    frame = points(spark).withColumn("features", array_to_vector("features"))
    fitted = trainer(epochs=2).fit(frame)
    predicted = fitted.transform(frame)
    assert accuracy(predicted) > 0.9
    assert [field.name for field in predicted.schema] == [*frame.columns, "prediction"]


def test_an_autoencoder_learns_the_column_that_it_takes(spark):
    fitted = trainer(builders.autoencoder, label="features", epochs=3).fit(points(spark))
    assert fitted.history["loss"][-1] < fitted.history["loss"][0]


def test_a_model_takes_several_columns(spark):
    frame = points(spark).select(
        "label",
        F.slice("features", 1, 8).alias("left"),
        array_to_vector(F.slice("features", 9, 8)).alias("right"),
    )
    fitted = trainer(builders.two_inputs, features=["left", "right"], epochs=2).fit(frame)
    assert accuracy(fitted.transform(frame)) > 0.7


def test_one_number_is_predicted_as_a_double(spark):
    frame = points(spark).withColumn("label", F.expr("2.0 * features[0] + 1"))
    fitted = trainer(builders.regression, epochs=8, period=2, prediction="guess").fit(frame)
    predicted = fitted.transform(frame)
    assert predicted.schema["guess"].dataType.simpleString() == "double"
    assert predicted.select(F.avg(F.abs(F.expr("guess - label")))).first()[0] < 0.5


@pytest.mark.parametrize("build_model", [builders.shapeless, builders.strange])
def test_models_that_must_see_data_first_are_learned(spark, build_model):
    frame = points(spark)
    fitted = trainer(build_model, epochs=2).fit(frame)
    assert accuracy(fitted.transform(frame)) > 0.9


def test_names_of_columns_may_have_dots(spark):
    frame = points(spark).toDF("a.number", "a.b`c", "the.label")
    fitted = trainer(features="a.b`c", label="the.label", prediction="said.by.it").fit(frame)
    assert fitted.transform(frame).columns == [*frame.columns, "said.by.it"]
    vectors = frame.select(array_to_vector(F.col("`a.b``c`")).alias("a.b`c"))
    assert fitted.transform(vectors).first()["said.by.it"] is not None


def test_a_model_may_need_no_label(spark):
    frame = points(spark).drop("label")
    fitted = trainer(builders.unlabelled, label=None, epochs=2).fit(frame)
    assert fitted.history["loss"][1] < fitted.history["loss"][0]


def test_build_model_may_be_a_function_that_nobody_else_can_import(spark):
    units = builders.CLASSES

    def build_model():
        import keras

        model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(units, "softmax")])
        model.compile("adam", "sparse_categorical_crossentropy")
        return model

    assert len(trainer(build_model).fit(points(spark)).workers) == 2


def test_a_training_goes_on_from_its_snapshots_with_another_number_of_workers(spark, tmp_path):
    frame, folder = points(spark), str(tmp_path / "snapshots")
    once = trainer(epochs=1, snapshots=folder).fit(frame)
    assert sum(worker["samples"] for worker in once.workers) == 600
    both = trainer(epochs=2, workers=3)
    fitted = both.fit(frame, resume=folder)
    assert sum(worker["samples"] for worker in fitted.workers) == 600
    assert fitted.history["loss"][0] < once.history["loss"][0]
    with pytest.raises(ValueError, match="params= asks for several"):
        both.fit(frame, [{}, {}], resume=folder)


# ---- What is wrong is said, and early. -----------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"features": "image"}, "no column 'image': there are number, features, label"),
        ({"label": "class"}, "no column 'class'"),
        ({"features": "text"}, "column 'text' is string"),
        ({"features": ["features", "number"]}, "has 1 inputs, and features= names 2 columns"),
        ({"build_model": builders.uncompiled}, "not compiled"),
        ({"build_model": None}, "no model to train"),
    ],
)
def test_what_can_not_be_trained_is_said_at_once(spark, options, said):
    frame = points(spark)
    if options.get("features") == "text":
        frame = frame.withColumn("text", F.lit("no number"))
    with pytest.raises(ValueError, match=said):
        trainer(**options).fit(frame)


def test_build_model_must_return_a_model(spark):
    with pytest.raises(TypeError, match="has returned 'a model', and not a Keras model"):
        trainer(lambda: "a model").fit(points(spark))


def test_build_model_must_not_hold_what_only_the_driver_has(spark):
    with pytest.raises(ValueError, match="can't be sent to the executors"):
        trainer(lambda: spark.range(1) and builders.classifier()).fit(points(spark))


def test_a_row_of_the_wrong_shape_ends_the_training_and_is_shown(spark):
    short = F.when(F.col("number") == 7, F.slice("features", 1, 3)).otherwise(F.col("features"))
    with pytest.raises(TrainingError, match="column 'features', row 7 of this partition"):
        trainer().fit(points(spark).withColumn("features", short))


def test_no_rows_at_all_are_an_error(spark):
    for build_model in (builders.classifier, builders.shapeless):
        with pytest.raises(ValueError, match="not a single row"):
            trainer(build_model).fit(points(spark).where("false"))


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"epochs": 0}, ValueError, "epochs must be a whole number from 1 on"),
        ({"batch_size": "many"}, TypeError, "batch_size"),
        ({"features": []}, TypeError, "must be the name of a column"),
        ({"hang_seconds": -1}, ValueError, "hang_seconds must be"),
        ({"label": 3}, TypeError, "label"),
        ({"period": 0}, ValueError, "period must be"),
        ({"policy": "gradient"}, ValueError, "elastic, local, dense"),
        ({"perido": 4}, TypeError, "no option 'perido'"),
        ({"build_model": "model"}, TypeError, "build_model is 'model'"),
    ],
)
def test_options_are_checked_when_they_are_given(options, kind, said):
    with pytest.raises(kind, match=said):
        trainer(**options)


# ---- Predicting. ---------------------------------------------------------------------------------


def test_other_columns_are_untouched_and_rows_keep_their_order(spark):
    frame = (
        points(spark, 100)
        .withColumn("vector", F.lit(None).cast("int"))
        .withColumn("a b.c", F.lit("text"))
        .withColumn("map", F.create_map(F.lit("n"), F.col("number")))
        .withColumn("when", F.lit("2026-01-31 12:00:00").cast("timestamp"))
    )
    fitted = untrained(builders.classifier, batch_size=7)
    predicted = fitted.transform(frame)
    assert predicted.schema.fields[:-1] == frame.schema.fields
    assert [row[:-1] for row in predicted.collect()] == [row[:] for row in frame.collect()]
    expected = fitted.model.predict(builders.blobs(100)[0], verbose=0)
    assert np.allclose(
        [r.prediction for r in predicted.orderBy("number").collect()], expected, atol=1e-6
    )


@pytest.mark.parametrize("kind", ["array<double>", "binary", "sparse", "nested", "scalars"])
def test_every_kind_of_column_predicts_the_same(spark, kind):
    x, _ = builders.blobs(20)
    x[x < 0] = 0
    fitted = untrained(builders.classifier)
    if kind == "scalars":
        x = x[:, :1]
        rows, schema = [(float(row[0]),) for row in x], "features double"
        fitted = untrained(one_number)
    elif kind == "sparse":
        rows = [(Vectors.sparse(16, np.flatnonzero(row), row[row != 0]),) for row in x]
        schema = ["features"]
    elif kind == "nested":
        rows = [(row.reshape(4, 4).tolist(),) for row in x]
        schema = "features array<array<float>>"
    else:
        rows = [(bytearray(row.tobytes()) if kind == "binary" else row.tolist(),) for row in x]
        schema = f"features {kind}"
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    expected = fitted.model.predict(x, verbose=0)
    found = [row.prediction for row in fitted.transform(frame).collect()]
    assert np.allclose(np.reshape(found, expected.shape), expected, atol=1e-6)


def one_number():
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_images_are_predicted_as_nested_arrays(spark):
    fitted = untrained(builders.images)
    predicted = fitted.transform(points(spark, 10))
    assert predicted.schema["prediction"].dataType.simpleString() == "array<array<array<float>>>"
    assert np.shape(predicted.first().prediction) == (4, 4, 2)


def test_a_model_is_sent_once_and_predicts_wherever_it_is_used(spark):
    fitted = untrained(builders.classifier)
    frame = points(spark, 50)
    first, second = fitted.transform(frame), fitted.copy().transform(frame.drop("label"))
    assert fitted._send(spark.sparkContext) is fitted.copy()._send(spark.sparkContext)
    assert first.select("prediction").collect() == second.select("prediction").collect()


def test_a_prediction_replaces_no_column(spark):
    frame = points(spark, 10)
    with pytest.raises(ValueError, match="there is a column 'prediction' already"):
        untrained(builders.classifier).transform(frame.withColumn("prediction", F.lit(1)))
    with pytest.raises(ValueError, match="no column 'features'"):
        untrained(builders.classifier).transform(frame.drop("features"))


# ---- As a part of pyspark.ml. --------------------------------------------------------------------


def test_a_pipeline_assembles_trains_and_predicts(spark):
    frame = points(spark).select(
        "label", *(F.expr(f"features[{n}]").alias(f"f{n}") for n in range(16))
    )
    assembler = VectorAssembler(inputCols=[f"f{n}" for n in range(16)], outputCol="features")
    fitted = Pipeline(stages=[assembler, trainer(epochs=2)]).fit(frame)
    assert accuracy(fitted.transform(frame)) > 0.9
    assert isinstance(fitted.stages[1], ElasticModel)


class Accuracy(Evaluator):
    def _evaluate(self, dataset) -> float:
        return accuracy(dataset)


def test_settings_are_tuned_on_a_grid_that_may_hold_models(spark):
    base = trainer(lambda: untrainable())
    grid = (
        ParamGridBuilder()
        .addGrid(base.build_model, [untrainable, builders.classifier])
        .addGrid(base.epochs, [2])
        .build()
    )
    split = TrainValidationSplit(
        estimator=base,
        estimatorParamMaps=grid,
        evaluator=Accuracy(),
        trainRatio=0.8,
        parallelism=2,
        seed=3,
    )
    tuned = split.fit(points(spark))
    assert tuned.validationMetrics[1] > 0.8 > tuned.validationMetrics[0]
    assert tuned.bestModel.workers[0]["steps"] > 0
    assert accuracy(tuned.transform(points(spark))) > 0.9


def untrainable():
    import keras

    model = builders.classifier()
    model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
    return model


def test_params_are_copied_and_explained():
    base = trainer(epochs=3, density=0.1)
    other = base.copy({base.epochs: 5, base.workers: 7})
    assert (base.getOrDefault("epochs"), other.getOrDefault("epochs")) == (3, 5)
    assert other.settings() == {"density": 0.1}
    assert other.getOrDefault("build_model") is builders.classifier
    assert base.setParams(period=9) is base
    assert base.settings() == {"density": 0.1, "period": 9}
    assert "steps between two exchanges (current: 9)" in base.explainParams()
    with pytest.raises(ValueError, match="epochs must be"):
        base.copy({base.epochs: 0})
