"""What the benchmark of Spark runs: how much of it, and with which settings.

All sides train the same model with Adam, whose rate falls to zero within the steps of a worker.
Each has the rate that was best for it: of 0.001, 0.002, 0.004 and 0.008 for elephas, of 0.004,
0.008 and 0.012 for us with a batch of 64, and of 0.004, 0.006 and 0.008 with one of 32 (tried with
exchanges every 10 steps). The images on which that was tried are those of the results.

elephas' asynchronous workers add their steps to the shared model, one after the other; ours are
averaged. So it takes two of ours with 32 rows to move the shared model by a step of 64, as one of
elephas' does: that is OURS_OFTEN, which also exchanges more often than the others.
"""

from dataclasses import dataclass, field

LINK = "100mbit"

# Data is where executors can read it: Parquet for us, and for elephas an RDD of the same rows in
# the executors' memory, so that no side moves rows.
OURS, OURS_OFTEN = "ours", "ours_often"
# Workers of ours that never exchange: first and last weights, and what Spark has to say. No
# training of ours moves fewer bytes, and exchanges only cost time; but nobody learns from others.
SILENT = "silent"
SYNC, ASYNC_EPOCH, ASYNC_BATCH = "sync", "async_epoch", "async_batch"
# Data is in the driver, as in elephas' documentation. Rows are counted, too.
OURS_FROM_DRIVER, SYNC_FROM_DRIVER = "ours_from_driver", "sync_from_driver"
OUR_SIDES = (OURS, OURS_OFTEN, OURS_FROM_DRIVER, SILENT)
ELEPHAS_SIDES = (SYNC, SYNC_FROM_DRIVER, ASYNC_EPOCH, ASYNC_BATCH)


@dataclass(frozen=True)
class Side:
    """Who trains, and how."""

    about: str
    rate: float
    batch: int = 64  # Of a worker.
    settings: dict[str, object] = field(default_factory=dict)  # Of the exchange: not the defaults.


SIDES = {
    OURS: Side("tl.spark.ElasticTrainer, from Parquet", 0.008),
    OURS_OFTEN: Side("the same, every 4 steps of 32 rows", 0.008, 32, {"period": 4}),
    OURS_FROM_DRIVER: Side("the first, from the driver", 0.008),
    SILENT: Side("the first, without exchanges (the limit)", 0.008, settings={"period": 1_000_000}),
    SYNC: Side("elephas, synchronous", 0.004),
    SYNC_FROM_DRIVER: Side("the same, to_simple_rdd()", 0.004),
    ASYNC_EPOCH: Side("elephas, asynchronous, by epoch", 0.004),
    ASYNC_BATCH: Side("elephas, asynchronous, by batch", 0.004),
}


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rows: int
    epochs: int
    seeds: int
    test_rows: int
    feed_copies: int  # of all rows, in one pass
    feed_rounds: int
    feed_batch: int = 64
    warm_rows: int = 512

    def steps(self, workers: int, batch: int) -> int:
        """Of each worker."""
        return -(-self.rows // workers // batch) * self.epochs


FULL = Size(60_000, 5, 3, 10_000, 10, 7)
QUICK = Size(4_000, 1, 1, 1_000, 2, 2)
