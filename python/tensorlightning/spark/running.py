"""tl.spark.run(): any function on every worker."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tensorlightning.spark import aggregation, checks, task
from tensorlightning.spark.job import Job, slots_of


def run(
    train: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    *,
    env: Mapping[str, str] | None = None,
    start_seconds: float = 600.0,
    aggregator: str = "driver",
    secret_file: str | None = None,
    port: int = 0,
    snapshots: str | None = None,
    progress: bool = True,
    record: str | None = None,
) -> list[Any]:
    """Calls ``train(*args, **kwargs)`` in num_proc tasks at once; returns the results by rank.

    >>> def train(rate):
    ...     model = build_model(rate)
    ...     model.fit(tl.shard(x), tl.shard(y), callbacks=[tl.Elastic()])
    ...     return model.get_weights() if tl.rank() == 0 else None
    >>> weights = tl.spark.run(train, args=(0.01,), num_proc=4)[0]

    Inside, everything is as under tlrun: tl.rank(), tl.size(), tl.local_rank(), tl.Elastic(),
    tl.exchanger(), tl.DistributedOptimizer(), every policy. A task that Spark starts again calls
    the function anew, and joins the others.

    Args:
      num_proc: how many workers; by default as many as Spark has slots for.
      env: variables for the workers; TL_PERIOD and so on among them.
      start_seconds: how long workers wait for all to be there, before it is an error: they run
        at once, unlike those of fit().
      others: as for tl.spark.trainer.
    """
    from pyspark import SparkContext

    if not callable(train):
        raise TypeError(f"train is {train!r}: it must be a function")
    context = SparkContext.getOrCreate()
    own = 1 if aggregator == aggregation.TASK else 0
    if num_proc is None:
        count = max(1, context.defaultParallelism - own)
    else:
        count = checks.whole("num_proc", num_proc)
    slots = slots_of(context)
    if slots is not None and count + own > slots:
        beside = ", one of them for the aggregator" if own else ""
        raise ValueError(
            f"num_proc={count}: all workers run at once, and {context.master} has {slots} "
            f"slots{beside}"
        )
    with Job(
        context,
        workers=count,
        aggregator=aggregator,
        secret_file=secret_file,
        port=port,
        snapshots=snapshots,
        progress=progress,
        record=record,
        gather=True,
        gather_seconds=start_seconds,
        # The function may do as it likes for as long as it likes.
        stall_seconds=float("inf"),
    ) as job:
        work = _working(job.ticket, train, tuple(args), dict(kwargs or {}), dict(env or {}))
        tasks = context.parallelize(range(count), count).mapPartitions(work)
        results = job.run(tasks.collect)
    return [result for _, result in sorted(results, key=lambda pair: pair[0])]


def _working(
    ticket: task.Ticket,
    train: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    env: dict[str, str],
) -> Callable[[Iterator[Any]], Iterator[tuple[int, Any]]]:
    def work(_: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        with task.worker(ticket, env) as member:
            member.follow()
            result = train(*args, **kwargs)
            member.done()
        return iter([(member.rank, result)])

    return work
