"""A model's variables as the ops want them: floats only, by handle, with names that all share."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

_FLOATS = (tf.float32, tf.float16, tf.bfloat16, tf.float64)
_NUMBER_AT_END = re.compile(r"_\d+(?=/|$)")
_NOT_IN_NAMES = re.compile(r"[^ -~]")
_LONGEST_NAME = 900


def native(variable: Any) -> tf.Variable:
    """TensorFlow's variable behind Keras's."""
    inner = variable if isinstance(variable, tf.Variable) else getattr(variable, "value", None)
    if not hasattr(inner, "handle"):
        raise TypeError(f"{variable!r} is no variable of TensorFlow or Keras")
    return inner


def floats(variables: Iterable[Any]) -> list[Any]:
    """Those that can be averaged, once each: no counters, no seeds, nothing without entries."""
    found, seen = [], set()
    for variable in variables:
        inner = native(variable)
        fits = inner.dtype in _FLOATS and inner.shape.num_elements() != 0
        if fits and id(inner) not in seen:
            seen.add(id(inner))
            found.append(variable)
    return found


def handles(variables: Sequence[Any]) -> list[tf.Tensor]:
    return [native(variable).handle for variable in variables]


def names(variables: Sequence[Any]) -> list[str]:
    """Names for the layout: the same in every worker.

    Keras numbers its layers as they are made (dense, dense_1, ...) in the whole process, so that
    one that had made another model before would have other names. Positions tell them apart.
    """
    return [f"{index}:{_plain(variable)}" for index, variable in enumerate(variables)]


def _plain(variable: Any) -> str:
    path = getattr(variable, "path", None) or variable.name.split(":")[0]
    return _NOT_IN_NAMES.sub("?", _NUMBER_AT_END.sub("", path))[-_LONGEST_NAME:]
