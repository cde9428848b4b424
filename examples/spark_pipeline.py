"""A network as a stage of a pyspark.ml Pipeline, after PCA: trained, saved, loaded, evaluated.

In a clone, after `make tf`; --master spark://host:7077 is for a cluster:

    PYTHONPATH=python .venv/bin/python examples/spark_pipeline.py
"""

import argparse
import os
import sys
import tempfile

import keras
import tensorlightning as tl
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import PCA, SQLTransformer
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession

COMPONENTS = 40


def build_model() -> keras.Model:
    """Runs in each worker."""
    model = keras.Sequential(
        [
            keras.Input((COMPONENTS,)),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy")
    return model


def frame(spark: SparkSession, images, labels, count: int) -> DataFrame:
    vectors = images[:count].reshape(-1, 28 * 28) / 255
    rows = [(Vectors.dense(vector), int(y)) for vector, y in zip(vectors, labels, strict=False)]
    return spark.createDataFrame(rows, ["pixels", "label"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", default="local[2]", help="of Spark (%(default)s: here)")
    parser.add_argument("--workers", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--quick", action="store_true", help="few images, and one epoch")
    parser.add_argument("--save", help="a folder, here or as in hdfs://, for the fitted pipeline")
    arguments = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master(arguments.master).appName("pipeline").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    train, test = tl.datasets.fashion_mnist()

    pca = PCA(k=COMPONENTS, inputCol="pixels", outputCol="features")
    network = tl.spark.ElasticTrainer(
        build_model,
        workers=arguments.workers,
        epochs=1 if arguments.quick else 6,
        prediction="scores",
    )
    best = SQLTransformer(
        statement="SELECT *, double(array_position(scores, array_max(scores)) - 1) AS prediction "
        "FROM __THIS__"
    )
    pipeline = Pipeline(stages=[pca, network, best])
    fitted = pipeline.fit(frame(spark, *train, 4000 if arguments.quick else 20_000))

    with tempfile.TemporaryDirectory() as folder:
        path = arguments.save or f"{folder}/pipeline"
        fitted.write().overwrite().save(path)
        loaded = PipelineModel.load(path)
        said = loaded.transform(frame(spark, *test, 1000 if arguments.quick else 10_000))
        right = MulticlassClassificationEvaluator(metricName="accuracy").evaluate(said)
    print(f"test accuracy {100 * right:.1f}%")
    spark.stop()


if __name__ == "__main__":
    main()
