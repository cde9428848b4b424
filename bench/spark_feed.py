"""How fast rows come out of Feed, in tasks of mapInArrow, beside a loop that only sums batches."""

import functools
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

KINDS = ("bare", "feed", "spilling")
RESULT = "rows bigint, seconds double, sum bigint"


def measure(frame, copies: int, rounds: int, batch: int) -> dict[str, list[float]]:
    """Rows/s of all tasks together, by round and kind, in turns."""
    many = functools.reduce(lambda one, other: one.union(other), [frame] * copies)
    # As many partitions as before: what was one file is one stream of rows.
    many = many.coalesce(frame.rdd.getNumPartitions())
    tasks: dict[str, Callable] = {
        "bare": sum_bare,
        "feed": functools.partial(sum_fed, batch=batch, epochs=1),
        "spilling": functools.partial(sum_fed, batch=batch, epochs=2),
    }
    found: dict[str, list[float]] = {kind: [] for kind in tasks}
    sums = set()
    for turn in range(rounds + 1):
        for kind, task in tasks.items():
            rows = many.mapInArrow(task, RESULT).collect()
            sums.add(sum(row.sum for row in rows))
            if turn:  # Once to warm up.
                found[kind].append(sum(row.rows / row.seconds for row in rows))
    if len(sums) != 1:
        raise RuntimeError(f"sums of the same rows differ: {sorted(sums)}")
    return found


def medians(found: dict[str, list[float]]) -> dict[str, float]:
    return {kind: statistics.median(rates) for kind, rates in found.items()}


def sum_bare(batches: Iterator) -> Iterator:
    """The roof: nothing but what any task has to do to see its rows."""
    begin, rows, total = time.perf_counter(), 0, 0
    for batch in batches:
        images, labels = batch.column(0), batch.column(1)
        offsets = np.frombuffer(images.buffers()[1], np.int32)
        pixels = np.frombuffer(images.buffers()[2], np.uint8)
        first = images.offset
        pixels = pixels[offsets[first] : offsets[first + len(images)]]
        total += int(pixels.sum()) + int(labels.to_numpy().sum())
        rows += batch.num_rows
    yield from _result(rows, time.perf_counter() - begin, total)


def sum_fed(batches: Iterator, *, batch: int, epochs: int) -> Iterator:
    """The same through Feed, with which ElasticTrainer trains: batches of a step, shuffled."""
    from tensorlightning.spark.columns import Column, from_arrow
    from tensorlightning.spark.feeding import Feed

    begin, rows, total = time.perf_counter(), 0, 0
    columns = [Column("image", (784,), "uint8"), Column("label")]
    with Feed(from_arrow(batches, columns), batch, epochs=epochs) as feed:
        for images, labels in feed.epoch(0):
            total += int(images.sum()) + int(labels.sum())
            rows += len(labels)
        seconds = time.perf_counter() - begin
    yield from _result(rows, seconds, total)


def _result(rows: int, seconds: float, total: int) -> Iterator:
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"rows": [rows], "seconds": [seconds], "sum": [total]})
