"""Training on a Spark cluster, from the data that is already in it.

    tl.spark.ElasticTrainer(build_model, workers=8, features="image", label="label").fit(df)
    tl.spark.CaffeTrainer(solver="solver.prototxt", net="net.prototxt").fit(df)
    rdd.mapPartitions(tl.spark.trainer(build_model))
    tl.spark.run(train, num_proc=4)

Spark moves rows, starts workers and starts lost ones again; parameters do not pass through Spark.

    driver                                     executors: one task is one worker
    +-----------------------------+            +--------------------------------------+
    | Job                         |  rows      | task: Membership                     |
    |   Watch   <-- beats, ranks -+------------+-> beats        rows -> Feed -> fit() |
    |   tl-aggregator  <-- parameters (comm/) -+-> worker           (prefetch, spill) |
    +-----------------------------+            |   guardian: kills it when it hangs   |
                                               +--------------------------------------+
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorlightning.spark.caffe_trainer import CaffeModel, CaffeTrainer
    from tensorlightning.spark.elastic_trainer import ElasticModel, ElasticTrainer
    from tensorlightning.spark.job import TrainingError
    from tensorlightning.spark.map_partitions import Trainer, trainer
    from tensorlightning.spark.running import run

__all__ = [
    "CaffeModel",
    "CaffeTrainer",
    "ElasticModel",
    "ElasticTrainer",
    "Trainer",
    "TrainingError",
    "run",
    "trainer",
]

# No module has the name of one of these: an import of it would hide what people mean.
_MODULE_OF = {
    "CaffeModel": "caffe_trainer",
    "CaffeTrainer": "caffe_trainer",
    "ElasticModel": "elastic_trainer",
    "ElasticTrainer": "elastic_trainer",
    "Trainer": "map_partitions",
    "TrainingError": "job",
    "run": "running",
    "trainer": "map_partitions",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tensorlightning.spark' has no attribute '{name}'")
    module = importlib.import_module(f"tensorlightning.spark.{_MODULE_OF[name]}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
