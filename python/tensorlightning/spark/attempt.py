"""One attempt at one partition, whatever it trains: first rows, membership, records of the past."""

from collections.abc import Callable
from typing import Any

from tensorlightning.spark import task
from tensorlightning.spark.feeding import Feed


def seed_of(seed: int) -> int:
    """For this partition: others shuffle in another order."""
    partition, _ = task.identity()
    return seed * 1_000_003 + partition


def run(
    ticket: task.Ticket, feed: Feed, train: Callable[[task.Membership], dict[str, Any]]
) -> dict[str, Any]:
    """The record of `train`, or that of an attempt which has finished before this one."""
    with feed:
        with task.wrong_rows_told(ticket):
            first = feed.first()
        if first is None:
            return task.empty_record()
        with task.worker(ticket) as member:
            member.waiting(lambda: feed.waiting)
            if member.record is None:
                return train(member)
            _check_rows(member, feed)
            return {name: member.record.get(name) for name in task.RECORD_FIELDS}


def _check_rows(member: task.Membership, feed: Feed) -> None:
    """Rows of an RDD that break off look like their end: whoever finished may not have had all."""
    rows = member.record.get("rows")
    if rows is not None and feed.count() != rows:
        member.reopen()
        raise ConnectionError(
            f"an attempt before this one has trained on {rows} rows, and there are {feed.rows}: "
            "they had broken off, and the partition is trained again. (Or these are other data: a "
            "trainer() is for one training)"
        )
