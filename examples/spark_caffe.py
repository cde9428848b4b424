"""LeNet on Fashion-MNIST in Spark: Caffe's solver and net, as their files are.

In a clone, after `make caffe`; --master spark://host:7077 is for a cluster:

    PYTHONPATH=python .venv/bin/python examples/spark_caffe.py
"""

import argparse
import os
import sys
from pathlib import Path

import tensorlightning as tl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)

LENET = Path(__file__).resolve().parent / "caffe_lenet"


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
    parser.add_argument("--save", help="a file for the trained net, such as lenet.caffemodel")
    arguments = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(arguments.master).appName("LeNet")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    train, test = tl.datasets.fashion_mnist()

    trainer = tl.spark.CaffeTrainer(
        solver=LENET / "solver.prototxt",
        net=LENET / "net.prototxt",
        workers=arguments.workers,
        epochs=1 if arguments.quick else arguments.epochs,
        features="image",
        label="label",
        shape=(1, 28, 28),
    )
    fitted = trainer.fit(frame(spark, *train, 4000 if arguments.quick else 60_000))

    # The prediction is what the Accuracy layer gets: ten scores.
    said = fitted.transform(frame(spark, *test, 1000 if arguments.quick else 10_000))
    best = F.expr("array_position(prediction, array_max(prediction)) - 1")
    right = said.select(F.avg((best == F.col("label")).cast("int"))).first()[0]
    moved = fitted.record["bytes"] / 1e6
    print(f"{len(fitted.workers)} workers, {fitted.record['samples']} images, {moved:.1f} MB moved")
    print(f"test accuracy {100 * right:.1f}%")
    if arguments.save:
        Path(arguments.save).write_bytes(fitted.caffemodel)
    spark.stop()


if __name__ == "__main__":
    main()
