"""Feed: every row once per epoch, whatever comes and however it comes."""

import contextlib
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tensorlightning.spark import spill
from tensorlightning.spark.feeding import Feed

SEEDS = range(20)


def pieces_of(rows: int, random: np.random.Generator, width: int = 3):
    """Rows that can be told from each other, in pieces of all sizes; some are empty."""
    numbers = np.arange(rows)
    data = (numbers[:, None] + np.arange(width) / 8).astype(np.float32)
    begin, pieces = 0, []
    while begin < rows or not pieces:
        end = begin + int(random.choice([0, 1, 2, 7, 64, 100]))
        pieces.append((data[begin:end], numbers[begin:end]))
        begin = end
    return pieces


def rows_of(batches) -> list[int]:
    """The numbers of the rows; the columns of each have stayed together."""
    numbers: list[int] = []
    for data, number in batches:
        assert len(data) == len(number)
        np.testing.assert_array_equal(data[:, 0], number)
        numbers += number.tolist()
    return numbers


@pytest.fixture(params=["in memory", "on the disk"])
def place(request, monkeypatch):
    """Where rows are kept. On the disk, many pieces, blocks and windows are needed for few rows."""
    if request.param == "on the disk":
        monkeypatch.setattr(spill, "WINDOW_BYTES", 1000)
        monkeypatch.setattr(spill, "_BLOCK_BYTES", 120)
        monkeypatch.setattr(spill, "PIECE_BYTES", 400)
    return request.param


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_row_comes_once_per_epoch(seed, shuffle, place):
    random = np.random.default_rng(seed)
    rows, batch_size = int(random.integers(0, 500)), int(random.choice([1, 2, 10, 64, 1000]))
    pieces = pieces_of(rows, random)
    orders = []
    with Feed(iter(pieces), batch_size, shuffle=shuffle, seed=seed) as feed:
        for number in range(4):
            batches = list(feed.epoch(number))
            assert all(len(batch[0]) == batch_size for batch in batches[:-1])
            assert all(0 < len(batch[0]) <= batch_size for batch in batches)
            orders.append(rows_of(batches))
            assert sorted(orders[-1]) == list(range(rows))
            assert (feed.rows, feed.complete, feed.waiting) == (rows, True, False)
    if not shuffle:
        assert all(order == list(range(rows)) for order in orders)
    elif rows > 50:
        assert len({tuple(order) for order in orders[1:]}) == 3


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_later_attempt_gets_the_same_order_and_skips_exactly(seed, shuffle, place):
    random = np.random.default_rng(seed)
    rows, batch_size = int(random.integers(1, 500)), int(random.choice([1, 10, 64]))
    pieces = pieces_of(rows, random)
    options = {"batch_size": batch_size, "shuffle": shuffle, "seed": seed}
    with Feed(iter(pieces), **options) as feed:
        orders = [rows_of(feed.epoch(number)) for number in range(3)]
        # Again, now from where they are kept.
        assert rows_of(feed.epoch(0)) == orders[0]
    for number, order in enumerate(orders):
        skip = int(random.integers(0, rows + 5))
        with Feed(iter(pieces), **options) as retried:
            assert rows_of(retried.epoch(number, skip)) == order[skip:]
            assert rows_of(retried.epoch(2)) == orders[2]


def test_another_seed_is_another_order(place):
    def order(seed: int, number: int) -> list[int]:
        with Feed(iter(pieces_of(300, np.random.default_rng(1))), 64, seed=seed) as feed:
            return rows_of(feed.epoch(number))

    for number in (0, 1):
        assert order(-1, number) == order(-1, number)
        assert len({tuple(order(seed, number)) for seed in (-1, 0, 1)}) == 3


def test_each_piece_is_shuffled_in_a_way_of_its_own():
    with Feed(iter([(np.arange(100),)] * 5), 100, epochs=1) as feed:
        assert len({tuple(batch) for [batch] in feed.epoch(0)}) == 5


def test_later_epochs_mix_rows_that_came_far_apart(monkeypatch):
    """Also when only a tenth of them is in memory at once."""
    monkeypatch.setattr(spill, "WINDOW_BYTES", 1000 * 20)
    monkeypatch.setattr(spill, "_BLOCK_BYTES", 20 * 20)
    numbers = np.arange(10_000)
    data = numbers.repeat(3).reshape(-1, 3).astype(np.float32)
    pieces = [(data[i : i + 100], numbers[i : i + 100]) for i in range(0, 10_000, 100)]
    with Feed(iter(pieces), 100) as feed:
        means = [batch[1].mean() for batch in feed.epoch(1)]
    # Of a perfect shuffle they would be within 5000 +- 290 mostly, in order 50 ... 9950.
    assert np.std(means) < 1000


def test_only_columns_that_lie_across_pieces_are_copied():
    data = np.arange(100.0)
    with Feed(iter([(data[:50],), (data[50:],)]), 30, shuffle=False, epochs=1) as feed:
        shared = [np.shares_memory(batch, data) for [batch] in feed.epoch(0)]
    assert shared == [True, False, True, True]


def test_an_empty_partition_has_no_batches(place):
    for pieces in ([], [(np.zeros((0, 3)), np.zeros(0))]):
        with Feed(iter(pieces), 8) as feed:
            assert feed.first() is None
            assert list(feed.epoch(0)) == list(feed.epoch(1)) == []
            assert feed.complete and feed.rows == 0


def test_first_rows_stay_to_be_read():
    pieces = pieces_of(100, np.random.default_rng(3))
    with Feed(iter(pieces), 8) as feed:
        first = feed.first()
        assert 0 < len(first[0]) <= 8
        order = rows_of(feed.epoch(0))
        assert rows_of([first]) == order[: len(first[0])]
        assert feed.first() is first
    with Feed(iter(pieces), 8) as feed:
        assert rows_of(feed.epoch(0)) == order
        np.testing.assert_array_equal(feed.first()[1], first[1])


class Late:
    """An iterator whose items come when they are let."""

    def __init__(self, items):
        self.items = iter(items)
        self.gate = threading.Semaphore(0)

    def __iter__(self):
        return self

    def __next__(self):
        self.gate.acquire()
        return next(self.items)


def until(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_rows_that_come_late_are_waited_for():
    numbers = np.arange(30)
    late = Late([(numbers[i : i + 10],) for i in (0, 10, 20)])
    got: list[int] = []
    with Feed(late, 4, shuffle=False) as feed:

        def consume():
            for [batch] in feed.epoch(0):
                got.extend(batch.tolist())

        thread = threading.Thread(target=consume)
        thread.start()
        for come in (0, 8, 20):  # Of 10 rows, 8 are whole batches: nothing is held back but a rest.
            until(lambda come=come: feed.waiting and len(got) == come)
            assert not feed.complete
            late.gate.release()
        late.gate.release()
        thread.join(20)
        assert got == list(range(30)) and feed.complete and not feed.waiting


def test_only_so_many_rows_are_read_ahead():
    pulled = []

    def endless():
        while True:
            pulled.append(len(pulled))
            yield (np.zeros(10),)

    with Feed(endless(), 10, ahead=3) as feed:
        batches = feed.epoch(0)
        next(batches)
        until(lambda: len(pulled) == 5)
        time.sleep(0.05)
        assert len(pulled) == 5  # One taken, three ready, one in hand.


@pytest.mark.parametrize("before", [0, 1, 3])
def test_errors_of_the_iterator_come_after_the_rows_before_them(before):
    def failing():
        for number in range(before):
            yield (np.array([number]),)
        raise ZeroDivisionError("in Spark")

    with Feed(failing(), 1, shuffle=False) as feed:
        got = []
        with pytest.raises(ZeroDivisionError, match="in Spark"):
            got.extend(batch.item() for [batch] in feed.epoch(0))
        assert got == list(range(before)) and not feed.complete
        with pytest.raises(ZeroDivisionError, match="in Spark"):
            next(feed.epoch(1))
        if not before:
            with pytest.raises(ZeroDivisionError, match="in Spark"):
                feed.first()


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        ((np.zeros((2, 3)), np.zeros(1)), r"columns of different lengths: \[2, 1\]"),
        ((np.zeros((2, 4)), np.zeros(2)), r"rows of .*\(4,\).* after rows of .*\(3,\)"),
        (
            (np.zeros((2, 3), np.float32), np.zeros(2)),
            "rows of .*float32.* after .*float64",
        ),
        ((np.zeros((2, 3)),), "rows of .* after rows of"),
    ],
)
def test_pieces_that_are_not_alike_are_refused(piece, message):
    with (
        Feed(iter([(np.zeros((2, 3)), np.zeros(2)), piece]), 2) as feed,
        pytest.raises(ValueError, match=message),
    ):
        list(feed.epoch(0))


def test_a_feed_for_one_epoch_keeps_nothing(monkeypatch):
    monkeypatch.setattr(spill, "Spill", None)
    with Feed(iter([(np.arange(9),)]), 4, epochs=1) as feed:
        assert sum(len(batch) for [batch] in feed.epoch(0)) == 9
        with pytest.raises(ValueError, match="keeps no rows for another"):
            feed.epoch(0)
        with pytest.raises(ValueError, match="epoch 1 of a feed for 1 epochs"):
            feed.epoch(1)


@pytest.mark.parametrize(("batch_size", "ahead"), [(0, 4), (8, 0)])
def test_sizes_are_checked(batch_size, ahead):
    with pytest.raises(ValueError, match="1 is the least"):
        Feed(iter([]), batch_size, ahead=ahead)


def test_an_epoch_that_is_given_up_does_not_go_on(place):
    pieces = pieces_of(300, np.random.default_rng(4))
    with Feed(iter(pieces), 10) as feed:
        streamed = feed.epoch(0)
        next(streamed)
        not_begun = feed.epoch(0)
        second = feed.epoch(1)
        assert len(next(second)[0]) == 10
        third = rows_of(feed.epoch(2))
        assert sorted(third) == list(range(300))
        for given_up in (streamed, second, not_begun):
            with pytest.raises(RuntimeError, match="given up when another one began"):
                list(given_up)


def test_rows_can_be_gathered_and_counted_before_the_first_epoch(place):
    pieces = pieces_of(300, np.random.default_rng(6))
    with Feed(iter(pieces), 10) as feed:
        order = rows_of(feed.epoch(0))
    with Feed(iter(pieces), 10) as feed:
        assert feed.gather() == feed.gather() == 300
        assert feed.complete
        assert rows_of(feed.epoch(0, 150)) == order[150:]
    with (
        Feed(iter(pieces), 10, epochs=1) as feed,
        pytest.raises(ValueError, match="single epoch keeps no rows"),
    ):
        feed.gather()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tl-feed")]


def files(folder: Path) -> int:
    """That are open in this folder, and have no name."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += link.readlink().is_relative_to(folder)
    return found


def test_closing_ends_threads_and_frees_files(place, tmp_path):
    feed = Feed(iter(pieces_of(2000, np.random.default_rng(5))), 10, folder=str(tmp_path))
    next(feed.epoch(1))
    assert files(tmp_path) == (2 if place == "on the disk" else 0)
    assert list(tmp_path.iterdir()) == []
    feed.close()
    assert threads() == [] and files(tmp_path) == 0
    with pytest.raises(RuntimeError, match="closed"):
        next(feed.epoch(2))
    feed.close()


def test_closing_does_not_wait_for_rows_that_do_not_come(monkeypatch):
    monkeypatch.setattr("tensorlightning.spark.ahead._PARTING_SECONDS", 0.05)
    late = Late([(np.arange(3),), (np.arange(3),)])
    late.gate.release()
    with Feed(late, 1) as feed:
        assert feed.first() is not None
        begin = time.monotonic()
    assert time.monotonic() - begin < 5
    late.gate.release()
    until(lambda: threads() == [])
