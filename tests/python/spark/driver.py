"""A driver for tests: trains, and says on each line of its output how far everybody is.

python driver.py MASTER WORKERS [--settings JSON-OF-SPARK'S] [--options JSON-OF-THE-TRAINER'S]
"""

import argparse
import json
import threading
import time

import numpy as np
from pyspark.sql import SparkSession
from python.spark import slow
from tensorlightning import datasets
from tensorlightning import spark as tls

ROWS, EPOCHS, BATCH, TEST = 4000, 3, 20, 2000
# How soon Spark gives up a host that is silent.
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "12s",
    "spark.network.timeoutInterval": "4s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "12000",
    "spark.task.maxFailures": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def watch(places: dict, ended: threading.Event) -> None:
    while not ended.wait(0.3):
        shown = ("rank", "attempts", "attempt", "steps", "epochs", "state", "pid")
        say(places={p: {name: getattr(x, name) for name in shown} for p, x in places.items()})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("master")
    parser.add_argument("workers", type=int)
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--options", type=json.loads, default={})
    given = parser.parse_args()
    workers = given.workers
    builder = SparkSession.builder.master(given.master).appName("a test of TensorLightning")
    for name, value in (SETTINGS | given.settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Both hosts are to have an executor before tasks are given out.
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    while len(tracker.getExecutorInfos()) < workers + 1:
        time.sleep(0.2)
    (images, labels), (test_images, test_labels) = datasets.fashion_mnist()
    rows = [(images[i], int(labels[i])) for i in range(ROWS)]
    train = tls.trainer(slow.clothes, batch_size=BATCH, epochs=EPOCHS, **given.options)
    with train:
        ended = threading.Event()
        places = train._job.places.by_partition
        threading.Thread(target=watch, args=(places, ended), daemon=True).start()
        records = spark.sparkContext.parallelize(rows, workers).mapPartitions(train).collect()
        ended.set()
        scores = train.model().predict(test_images[:TEST], verbose=0)
        accuracy = float(np.mean(np.argmax(scores, axis=1) == test_labels[:TEST]))
    samples = sum(record["samples"] for record in records)
    say(accuracy=accuracy, samples=samples, spark=spark.version)
    spark.stop()


if __name__ == "__main__":
    main()
