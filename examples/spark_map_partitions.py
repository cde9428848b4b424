"""The bare wrapper: mapPartitions over an RDD, each partition a worker.

In a clone, after `make tf`; --master spark://host:7077 is for a cluster:

    PYTHONPATH=python .venv/bin/python examples/spark_map_partitions.py
"""

import argparse
import os
import sys

import keras
import tensorlightning as tl
from pyspark.sql import SparkSession


def build_model() -> keras.Model:
    """Runs in each worker."""
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", default="local[2]", help="of Spark (%(default)s: here)")
    parser.add_argument("--partitions", type=int, default=2, help="or workers (%(default)s)")
    parser.add_argument("--epochs", type=int, default=3, help="of each worker (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one epoch of a few images")
    arguments = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(arguments.master).appName("mapPartitions")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    (images, labels), test = tl.datasets.fashion_mnist()
    count, epochs = (4000, 1) if arguments.quick else (30_000, arguments.epochs)
    rows = [(image, int(label)) for image, label in zip(images[:count], labels, strict=False)]
    rdd = spark.sparkContext.parallelize(rows, arguments.partitions)

    with tl.spark.trainer(build_model, epochs=epochs, batch_size=32) as train:
        records = rdd.mapPartitions(train).collect()
        model = train.model()

    for record in records:
        print("rank {rank}: {steps} steps, {samples} images, {bytes} bytes moved".format(**record))
    print(f"test accuracy {100 * model.evaluate(*test, verbose=0)[1]:.1f}%")
    spark.stop()


if __name__ == "__main__":
    main()
