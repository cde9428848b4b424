"""tl.shard and what TL_* variables say."""

import collections

import numpy as np
import pytest
import tensorlightning as tl


@pytest.fixture
def worker(monkeypatch):
    def become(rank: int, size: int) -> None:
        monkeypatch.setenv("TL_RANK", str(rank))
        monkeypatch.setenv("TL_SIZE", str(size))

    return become


def test_without_a_launcher_there_is_one_worker():
    assert (tl.rank(), tl.size(), tl.local_rank(), tl.local_size()) == (0, 1, 0, 1)


def test_a_launcher_says_who_is_who(monkeypatch):
    for name, value in (("RANK", 5), ("SIZE", 8), ("LOCAL_RANK", 1), ("LOCAL_SIZE", 4)):
        monkeypatch.setenv(f"TL_{name}", str(value))
    assert (tl.rank(), tl.size(), tl.local_rank(), tl.local_size()) == (5, 8, 1, 4)


@pytest.mark.parametrize("text", ["two", "0", "-1"])
def test_a_size_that_is_none_is_an_error(monkeypatch, text):
    monkeypatch.setenv("TL_SIZE", text)
    with pytest.raises(ValueError, match=f"TL_SIZE='{text}'"):
        tl.size()


def test_parts_are_nearly_equal_and_leave_nothing_out(worker):
    x = np.arange(23).reshape(23, 1)
    parts = []
    for rank in range(4):
        worker(rank, 4)
        parts.append(tl.shard(x))
    assert sorted(len(part) for part in parts) == [5, 6, 6, 6]
    assert sorted(np.concatenate(parts)[:, 0]) == list(range(23))


def test_arrays_that_belong_together_stay_so(worker):
    worker(1, 3)
    Pair = collections.namedtuple("Pair", "a b")
    x = np.arange(9)
    first, named, pair, nested = tl.shard(x, {"x": x + 10}, Pair(x, None), [(x,)])
    assert list(first) == [1, 4, 7]
    assert list(named["x"]) == [11, 14, 17]
    assert isinstance(pair, Pair) and list(pair.a) == [1, 4, 7] and pair.b is None
    assert list(nested[0][0]) == [1, 4, 7]


def test_a_dataset_is_sharded(worker):
    import tensorflow as tf

    worker(1, 2)
    data = tf.data.Dataset.from_tensor_slices(np.arange(5))
    assert [int(x) for x in tl.shard(data)] == [1, 3]


def test_one_worker_gets_everything_as_it_is():
    x = np.arange(3)
    assert tl.shard(x) is x


def test_less_data_than_workers_is_an_error(worker):
    import tensorflow as tf

    worker(0, 4)
    with pytest.raises(ValueError, match="3 samples for 4 workers"):
        tl.shard(np.arange(3))
    with pytest.raises(ValueError, match=r"3 elements in the dataset.* for 4 workers"):
        tl.shard(tf.data.Dataset.range(3))


def test_different_lengths_are_an_error(worker):
    worker(0, 2)
    with pytest.raises(ValueError, match=r"different lengths: \[4, 5\]"):
        tl.shard(np.arange(4), np.arange(5))


def test_what_has_no_parts_is_an_error(worker):
    worker(0, 2)
    with pytest.raises(TypeError, match=r"can't take a part of int.*np\.asarray"):
        tl.shard([1, 2, 3])
