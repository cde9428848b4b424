"""Trains on a real Spark cluster, a master and two workers on this machine: a CNN in Keras with one
worker, with two that send everything and with two that don't, then LeNet in Caffe. The images come
from Parquet. Ends with a table and a plot. Some minutes on two cores.
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)
from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent.parent / "python"))
import spark_keras
import tensorlightning as tl
from comparison import (
    BLUE,
    CYAN,
    GREY,
    PLAIN_WIDTH,
    YELLOW,
    draw,
    explain,
    parse_arguments,
    problem_with,
    table,
)
from spark_demo.cluster import Cluster, ClusterError

HERE = Path(__file__).resolve().parent
LENET = HERE.parent / "caffe_lenet"
IMAGES, TEST_IMAGES, EPOCHS = 60_000, 10_000, 3
QUICK_IMAGES, QUICK_TEST_IMAGES, QUICK_EPOCHS = 2000, 500, 1

CODE = """\
trainer = tl.spark.ElasticTrainer(build_model, workers=2, features="image", label="label")
fitted = trainer.fit(spark.read.parquet("clothes.parquet"))
fitted.transform(test).select("label", "prediction")"""


def session(cluster: Cluster) -> SparkSession:
    builder = SparkSession.builder.master(cluster.url).appName("TensorLightning's demo")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Each executor has one slot; a task may be lost three times.
        "spark.task.maxFailures": "4",
        "spark.log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def write_parquet(spark: SparkSession, folder: str, quick: bool) -> tuple[DataFrame, DataFrame]:
    """Fashion-MNIST as rows of 784 bytes and a label, in files."""
    train, test = tl.datasets.fashion_mnist()
    counts = (QUICK_IMAGES, QUICK_TEST_IMAGES) if quick else (IMAGES, TEST_IMAGES)
    frames = []
    for name, data, count in zip(("train", "test"), (train, test), counts, strict=True):
        path = f"{folder}/{name}.parquet"
        spark_keras.frame(spark, *data, count).repartition(2, "image").write.parquet(path)
        frames.append(spark.read.parquet(path))
    return frames[0], frames[1]


def import_early(spark: SparkSession) -> None:
    """Executors keep their Python workers: the first training shall not pay for all."""

    def work() -> None:
        import tensorflow  # noqa: F401

    tl.spark.run(work, num_proc=2, progress=False)


def has_caffe() -> bool:
    from tensorlightning.caffe import _library

    try:
        return _library.path().is_file()
    except ImportError:
        return False


def accuracy(fitted, test: DataFrame) -> float:
    best = F.expr("array_position(prediction, array_max(prediction)) - 1")
    right = (best == F.col("label")).cast("int")
    return fitted.transform(test).select(F.avg(right)).first()[0]


def report(name: str, colour: tuple[str, str], fitted, test: DataFrame) -> dict:
    """As comparison.py wants it; the curve is of the training images."""
    reached = accuracy(fitted, test)
    curve = fitted.history.get("accuracy", [])
    points = [{"seconds": n + 1, "accuracy": value} for n, value in enumerate(curve)]
    alone = len(fitted.workers) == 1
    # Caffe tells no accuracy meanwhile, and its net is another.
    other = {} if points else {"unpruned": fitted.record["dense_bytes"]}
    return {
        "name": name,
        "colour": colour,
        "accuracy": reached,
        "seconds": fitted.record["seconds"],
        "bytes": 0 if alone else fitted.record["bytes"],
        "curve": points,
        **other,
    }


def contestants(train: DataFrame, quick: bool):
    """(name, colour, a function that trains) of each; a CNN where nothing else is said."""
    epochs = QUICK_EPOCHS if quick else EPOCHS
    columns = {"features": "image", "label": "label", "epochs": epochs, "progress": False}

    def keras_model(workers: int, **settings):
        trainer = tl.spark.ElasticTrainer(
            spark_keras.build_model, workers=workers, **columns, **settings
        )
        return lambda: trainer.fit(train)

    def lenet():
        files = {"solver": LENET / "solver.prototxt", "net": LENET / "net.prototxt"}
        trainer = tl.spark.CaffeTrainer(**files, workers=2, shape=(1, 28, 28), **columns)
        return trainer.fit(train)

    yield "one worker", GREY, keras_model(1)
    yield "2 workers, dense averaging", YELLOW, keras_model(2, policy="dense")
    yield "2 workers, TensorLightning", CYAN, keras_model(2)
    if has_caffe():
        yield "2 workers, LeNet in Caffe", BLUE, lenet


def main() -> int:
    options = parse_arguments(__doc__, HERE, "a few images, one epoch")
    if reason := problem_with(options.plot):
        print(f"demo.py: {reason}", file=sys.stderr)
        return 1
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    text = (
        "A CNN and LeNet learn to tell clothes apart (Fashion-MNIST, 60,000 images) on a Spark "
        "cluster: a master and two workers on this machine. Spark moves the images; what workers "
        "have learned does not pass through it."
    )
    title = "[bold]TensorLightning[/]"
    console.print(Panel(text, title=title, border_style="cyan", title_align="left"))
    console.print(Syntax(CODE, "python", background_color="default"))
    environment = {
        "PYTHONPATH": os.pathsep.join(sys.path[:2]),
        "PYSPARK_PYTHON": sys.executable,
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    os.environ.update(environment)
    scratch = tempfile.TemporaryDirectory(prefix="tensorlightning-spark-")
    with scratch as folder, Cluster(workers=2, environment=environment) as cluster:
        console.print(f"[dim]the cluster is at {cluster.url}[/]", highlight=False)
        spark = session(cluster)
        train, test = write_parquet(spark, folder, options.quick)
        import_early(spark)
        reports = []
        for name, colour, fit in contestants(train, options.quick):
            console.print(Rule(f"[bold {colour[0]}]{name}[/]", style=colour[0], align="left"))
            reports.append(report(name, colour, fit(), test))
            done = reports[-1]
            console.print(f"  {done['seconds']:6.1f} s  accuracy {done['accuracy']:.2%}")
        spark.stop()
    console.print(table(reports))
    console.print(explain(*reports[:3], "steps"), highlight=False)
    for other in reports[3:]:
        dense = f"{other['unpruned'] / 1e6:,.0f} MB"
        console.print(f"LeNet's exchanges would have moved {dense} unpruned.", highlight=False)
    if not has_caffe():
        console.print("Caffe is not installed here (see make setup): LeNet was left out.")
    draw(
        reports,
        "Fashion-MNIST on a Spark cluster of two workers, two cores",
        options.plot,
        along="epochs",
        measured="accuracy on the training images (%)",
    )
    console.print(f"\nThe plot is in {options.plot}", highlight=False, soft_wrap=True)
    console.print("The model's code is in examples/spark_keras.py", highlight=False)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("demo.py: interrupted")
    except ClusterError as error:
        sys.exit(f"demo.py: {error}")
