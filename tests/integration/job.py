"""A job whose result can be reckoned: pushes are exact, recorded, and compared with the centre.

    job = Job(folder)
    workers = job.load(0, 2, "--steps=100", "--drain")
    ...                                              # whatever may happen
    workers.finish()
    assert_same_steps(job.totals(), undisturbed)     # of a job in which nothing happened

Workers push gradients as they are, multiples of 1/256, so that sums are exact in any order.
"""

from pathlib import Path

import numpy as np
from integration.ledger import applied_pushes, assert_sum_of_pushes, newest_snapshot, read_snapshot
from integration.processes import Aggregator, Load

EXACT = ["--policy=gradient-async", "--exact", "--bits=32", "--density=1", "--reply-density=1"]
EXACT += ["--period=1", "--check"]

# Of every shard, and of every rank, the sum of its pushes.
Totals = list[dict[int, np.ndarray]]


class Job:
    """An aggregator that may be killed and started anew, the same each time, and its workers."""

    def __init__(self, folder: Path, layout: str, *flags: str, snapshot_every: str = "200ms"):
        self._folder, self._snapshots = folder, folder / "snapshots"
        self._layout = f"--layout={layout}"
        self._ledgers: list[Path] = []  # One for each process.
        self._flags = [f"--snapshot-dir={self._snapshots}", f"--snapshot-every={snapshot_every}"]
        self._flags += flags
        self.aggregator = Aggregator(*self._flags)
        self.address = self.aggregator.address

    def restart_aggregator(self) -> None:
        """After a kill without warning."""
        self.aggregator.kill()
        self.aggregator = Aggregator(*self._flags, listen="{}:{}".format(*self.address))

    def has_snapshot(self) -> bool:
        return newest_snapshot(self._snapshots) is not None

    def load(
        self, first: int, workers: int, *flags: str, via: tuple[str, int] | None = None
    ) -> Load:
        """Workers from rank `first` on, who fence off earlier ones of the same ranks."""
        attempt = len(self._ledgers) + 1
        self._ledgers.append(self._folder / f"ledger-{attempt}")
        who = [f"--rank-base={first}", f"--workers={workers}", f"--attempt={attempt}"]
        ledger = f"--ledger={self._ledgers[-1]}"
        return Load(via or self.address, *EXACT, self._layout, *who, ledger, *flags)

    def totals(self) -> Totals:
        """Ends the aggregator, and gives the sums of pushes in its centre, found to be right."""
        assert self.aggregator.stop() == 0
        final = read_snapshot(newest_snapshot(self._snapshots))
        totals = applied_pushes([path for path in self._ledgers if path.exists()], final)
        assert_sum_of_pushes(final, totals)
        return totals

    def close(self) -> None:
        self.aggregator.close()


def assert_same_steps(totals: Totals, undisturbed: Totals) -> None:
    """That all steps of those ranks are in the centre, whatever has happened, and no more."""
    for of_ranks, expected in zip(totals, undisturbed, strict=True):
        for rank, total in expected.items():
            assert np.array_equal(of_ranks[rank], total), f"steps of rank {rank} were lost"
