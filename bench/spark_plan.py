"""What the benchmark of Spark runs: how much of it, and with which settings.

All sides train the same model with Adam, whose rate falls to zero within the steps of a worker.
Each has the rate that was best for it, with seed 1: of 0.001, 0.002, 0.004 and 0.008 for elephas,
and of 0.004, 0.008 and 0.012 for us.
"""

from dataclasses import dataclass

LINK = "100mbit"

# Data is where executors can read it: Parquet for us, and for elephas an RDD of the same rows in
# the executors' memory, so that no side moves rows.
OURS = "ours"
SYNC, ASYNC_EPOCH, ASYNC_BATCH = "sync", "async_epoch", "async_batch"
# Data is in the driver, as in elephas' documentation. Rows are counted, too.
OURS_FROM_DRIVER, SYNC_FROM_DRIVER = "ours_from_driver", "sync_from_driver"
OUR_SIDES = (OURS, OURS_FROM_DRIVER)
ELEPHAS_SIDES = (SYNC, SYNC_FROM_DRIVER, ASYNC_EPOCH, ASYNC_BATCH)

RATES = {
    OURS: 0.008,
    OURS_FROM_DRIVER: 0.008,
    SYNC: 0.004,
    SYNC_FROM_DRIVER: 0.004,
    ASYNC_EPOCH: 0.004,
    ASYNC_BATCH: 0.004,
}
# Of the exchange: the defaults.
SETTINGS: dict[str, object] = {}

ABOUT = {
    OURS: "tl.spark.ElasticTrainer, from Parquet",
    OURS_FROM_DRIVER: "the same, from the driver",
    SYNC: "elephas, synchronous",
    SYNC_FROM_DRIVER: "the same, to_simple_rdd()",
    ASYNC_EPOCH: "elephas, asynchronous, by epoch",
    ASYNC_BATCH: "elephas, asynchronous, by batch",
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
    batch: int = 64
    warm_rows: int = 512

    def steps(self, workers: int) -> int:
        """Of each worker."""
        return -(-self.rows // workers // self.batch) * self.epochs


FULL = Size(60_000, 5, 3, 10_000, 10, 7)
QUICK = Size(4_000, 1, 1, 1_000, 2, 2)
