"""A CNN on Fashion-MNIST in Spark: from a DataFrame to a Keras model, and predictions as a column.

In a clone, after `make tf`; --master spark://host:7077 is for a cluster:

    PYTHONPATH=python .venv/bin/python examples/spark_keras.py
"""

import argparse
import os
import sys

import keras
import tensorlightning as tl
from keras import layers
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)


def build_model() -> keras.Model:
    """Runs in each worker."""
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(96, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.compile(
        keras.optimizers.SGD(0.03, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def frame(spark: SparkSession, images, labels, count: int) -> DataFrame:
    """An image is 784 bytes: of all columns, binary ones are the fastest to train from."""
    rows = [(images[n].tobytes(), int(labels[n])) for n in range(min(count, len(images)))]
    return spark.createDataFrame(rows, "image binary, label tinyint")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", default="local[2]", help="of Spark (%(default)s: here)")
    parser.add_argument("--workers", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--epochs", type=int, default=2, help="of each worker (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one epoch of a few images")
    parser.add_argument("--save", help="a file for the trained model, such as cnn.keras")
    arguments = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(arguments.master).appName("CNN")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    train, test = tl.datasets.fashion_mnist()

    trainer = tl.spark.ElasticTrainer(
        build_model,
        workers=arguments.workers,
        epochs=1 if arguments.quick else arguments.epochs,
        batch_size=32,
        features="image",
        label="label",
    )
    fitted = trainer.fit(frame(spark, *train, 4000 if arguments.quick else 60_000))

    said = fitted.transform(frame(spark, *test, 1000 if arguments.quick else 10_000))
    best = F.expr("array_position(prediction, array_max(prediction)) - 1")
    right = said.select(F.avg((best == F.col("label")).cast("int"))).first()[0]
    print("loss after each epoch:", *(f"{loss:.3f}" for loss in fitted.history["loss"]))
    moved = fitted.record["bytes"] / 1e6
    print(f"{len(fitted.workers)} workers, {fitted.record['samples']} images, {moved:.1f} MB moved")
    print(f"test accuracy {100 * right:.1f}%")
    if arguments.save:
        fitted.model.save(arguments.save)
    spark.stop()


if __name__ == "__main__":
    main()
