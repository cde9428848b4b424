"""An attempt that comes after another one has finished, without a cluster."""

import numpy as np
import pytest
from tensorlightning.spark import attempt
from tensorlightning.spark.feeding import Feed


class Member:
    """Of a partition that was trained before."""

    def __init__(self, rows: int | None):
        self.record = {"rank": 0, "samples": 100, "rows": rows}
        self.reopened = False

    def reopen(self) -> None:
        self.reopened = True


def feed(rows: int, epochs: int) -> Feed:
    return Feed(iter([(np.zeros((rows, 2), np.float32),)]), 10, epochs=epochs)


@pytest.mark.parametrize("epochs", [1, 3])
def test_rows_that_had_broken_off_are_trained_again(epochs):
    """Of an RDD's rows that break off pyspark makes their end: whoever had them saw too few."""
    member = Member(rows=60)
    with feed(100, epochs) as rows, pytest.raises(ConnectionError, match=r"60 rows.* are 100"):
        attempt._check_rows(member, rows)
    assert member.reopened


@pytest.mark.parametrize("rows", [100, None])
def test_who_had_all_rows_has_trained_on_them(rows):
    member = Member(rows)
    with feed(100, 1) as come:
        attempt._check_rows(member, come)
    assert not member.reopened
