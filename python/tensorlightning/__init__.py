"""TensorLightning: train one model on several machines, without waiting for the network.

    import tensorlightning as tl

    model.fit(tl.shard(x), tl.shard(y), callbacks=[tl.Elastic()])

and ``tlrun -np 4 python train.py``. For those who come from Horovod there is
``tl.DistributedOptimizer``, for loops without ``fit`` there is ``tl.exchanger``.

Importing this is cheap: TensorFlow is imported when something that needs it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tensorlightning.environment import local_rank, local_size, rank, size

if TYPE_CHECKING:
    from tensorlightning import datasets, spark
    from tensorlightning.checkpoint import Checkpoint
    from tensorlightning.data import shard
    from tensorlightning.exchanging import Exchanger, exchanger
    from tensorlightning.keras_callback import Elastic
    from tensorlightning.optimizer import DistributedOptimizer
    from tensorlightning.worker import statistics

__version__ = "0.1.0"

__all__ = [
    "Checkpoint",
    "DistributedOptimizer",
    "Elastic",
    "Exchanger",
    "datasets",
    "exchanger",
    "local_rank",
    "local_size",
    "rank",
    "shard",
    "size",
    "spark",
    "statistics",
]

_MODULE_OF = {
    "Checkpoint": "checkpoint",
    "DistributedOptimizer": "optimizer",
    "Elastic": "keras_callback",
    "Exchanger": "exchanging",
    "exchanger": "exchanging",
    "shard": "data",
    "statistics": "worker",
}


def __getattr__(name: str) -> Any:
    if name in ("datasets", "spark"):
        return importlib.import_module(f"tensorlightning.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tensorlightning' has no attribute '{name}'")
    module = importlib.import_module(f"tensorlightning.{_MODULE_OF[name]}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
