"""The driver of elephas, in a Python that has it.

Its synchronous mode averages once an epoch. Its asynchronous mode, with a parameter server over
HTTP in the driver, exchanges once an epoch (its default) or with every batch. All settings but
these are its defaults.
"""

import functools
from collections.abc import Callable

import numpy as np
import spark_data
from spark_data import WORKERS
from spark_driver import SparkDriver


class Elephas(SparkDriver):
    def prepare_sync(self, request: dict) -> Callable[[], object]:
        return self._model_of(request, self._cached(request["folder"]))

    def prepare_async_epoch(self, request: dict) -> Callable[[], object]:
        return self._model_of(request, self._cached(request["folder"]), "epoch")

    def prepare_async_batch(self, request: dict) -> Callable[[], object]:
        return self._model_of(request, self._cached(request["folder"]), "batch")

    def prepare_sync_from_driver(self, request: dict) -> Callable[[], object]:
        """As its documentation has it: to_simple_rdd(), of arrays in the driver."""
        from elephas.utils.rdd_utils import to_simple_rdd

        images, labels = spark_data.training(request["rows"])
        return self._model_of(request, to_simple_rdd(self.spark.sparkContext, images, labels))

    def _model_of(self, request: dict, rdd, frequency: str | None = None) -> Callable[[], object]:
        from elephas.spark_model import AsynchronousSparkModel, SparkModel

        model = spark_data.build_model(request["seed"], request["rate"], request["steps"])

        def fit():
            if frequency is None:
                shared = SparkModel(model)
            else:
                shared = AsynchronousSparkModel(model, frequency=frequency, mode="asynchronous")
            shared.fit(rdd, epochs=request["epochs"], batch_size=request["batch"], verbose=0)
            return shared.master_network

        return fit

    @functools.cache  # noqa: B019 (as long as the process)
    def _cached(self, folder: str):
        """Rows of Parquet, in the executors' memory before anything is counted."""
        rdd = self.spark.read.parquet(folder).rdd.map(pair).cache()
        rdd.count()
        if rdd.getNumPartitions() != WORKERS:
            raise RuntimeError(f"{rdd.getNumPartitions()} partitions for {WORKERS} workers")
        return rdd


def pair(row) -> tuple[np.ndarray, int]:
    return np.frombuffer(row.image, np.uint8), row.label


if __name__ == "__main__":
    Elephas().serve()
