"""tl.shard(): every worker's part of the data."""

from typing import Any

from tensorlightning import environment


def shard(*data: Any) -> Any:
    """This worker's part of the data: every ``size()``-th sample, beginning with sample ``rank()``.

    >>> x, y = tl.shard(x, y)
    >>> dataset = tl.shard(dataset)            # before .batch(): samples; after it: whole batches
    >>> inputs = tl.shard({"image": images, "text": texts})

    Takes a tf.data.Dataset, an array (NumPy's, TensorFlow's, or whatever has ``shape`` and can be
    sliced), or tuples, lists and dictionaries of them, whose arrays all have as many samples.
    Parts differ by one sample at most; no sample is left out. One worker gets everything, as it is.
    """
    if not data:
        raise TypeError("tl.shard() wants data: a dataset, or arrays")
    _check_lengths(data)
    parts = tuple(_part(item) for item in data)
    return parts[0] if len(parts) == 1 else parts


def _is_dataset(item: Any) -> bool:
    # Whoever has made one has imported TensorFlow; arrays are sharded without it.
    return any(base.__name__ == "DatasetV2" for base in type(item).__mro__)


def _is_array(item: Any) -> bool:
    return hasattr(item, "shape") and hasattr(item, "__getitem__") and len(item.shape) > 0


def _arrays(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return [array for value in item.values() for array in _arrays(value)]
    if isinstance(item, tuple | list):
        return [array for value in item for array in _arrays(value)]
    if _is_dataset(item) or item is None:
        return []
    if _is_array(item):
        return [item]
    raise TypeError(
        f"tl.shard() can't take a part of {type(item).__name__}: it takes tf.data.Dataset, arrays "
        "(np.asarray(...) makes one), and tuples, lists and dictionaries of arrays"
    )


def _check_lengths(data: tuple[Any, ...]) -> None:
    lengths = {int(array.shape[0]) for array in _arrays(data)}
    if len(lengths) > 1:
        raise ValueError(
            f"tl.shard(): arrays that belong together have different lengths: {sorted(lengths)}"
        )
    if lengths:
        _check_enough(lengths.pop(), "samples")


def _check_enough(count: int, what: str) -> None:
    if count < environment.size():
        raise ValueError(
            f"tl.shard(): there are {count} {what} for {environment.size()} workers; "
            "each needs one at least"
        )


def _part(item: Any) -> Any:
    size, rank = environment.size(), environment.rank()
    if size == 1 or item is None:
        return item
    if rank >= size:
        raise ValueError(f"TL_RANK={rank} is not below TL_SIZE={size}")
    if isinstance(item, dict):
        return {key: _part(value) for key, value in item.items()}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(_part(value) for value in item))
    if isinstance(item, tuple | list):
        return type(item)(_part(value) for value in item)
    if _is_dataset(item):
        count = int(item.cardinality())
        if count >= 0:
            _check_enough(count, "elements in the dataset (batches, if it is batched)")
        return item.shard(size, rank)
    rows = getattr(item, "iloc", item)  # pandas: by position.
    return rows[rank::size]
