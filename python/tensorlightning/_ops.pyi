"""What libtensorlightning_tf.so offers.

`worker` is an int64 scalar, `resources` the handles of the same variables in the same order.
Errors are tf.errors.*; their message says what happened and what to do.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

Handles = Sequence[tf.Tensor]
Scalar = tf.Tensor | tf.Variable | int
Values = tf.Tensor | tf.Variable | np.ndarray
Density = tf.Tensor | float

def tl_join(
    options: str | tf.Tensor, resources: Handles, names: Sequence[str], name: str | None = None
) -> tf.Tensor:
    """Begins to join, and returns the worker's number at once. Options: name=value, in lines."""

def tl_joined(
    worker: Scalar, resources: Handles, timeout_s: float = 0.2, name: str | None = None
) -> tf.Tensor:
    """Whether it has joined: then the variables hold the centre. False: ask again."""

def tl_step(
    worker: Scalar, steps: Scalar, resources: Handles, name: str | None = None
) -> tf.Tensor:
    """After so many steps of training: adds what has come back, perhaps starts an exchange."""

def tl_exchange(worker: Scalar, resources: Handles, name: str | None = None) -> tf.Tensor:
    """Starts an exchange, unless one is under way."""

def tl_wait(worker: Scalar, timeout_s: float = 0.2, name: str | None = None) -> tf.Tensor:
    """Whether no exchange is under way."""

def tl_pull(worker: Scalar, resources: Handles, name: str | None = None) -> Any:
    """The centre into the variables; training can go on."""

def tl_finish(
    worker: Scalar,
    resources: Handles,
    own: bool = False,
    name: str | None = None,
) -> Any:
    """A last exchange, the centre into the variables (unless own), and leaves."""

def tl_leave(worker: Scalar, name: str | None = None) -> Any:
    """Leaves at once."""

def tl_average_gradients(
    worker: Scalar,
    gradients: Sequence[tf.Tensor],
    name: str | None = None,
) -> list[tf.Tensor]:
    """The mean of all workers' gradients."""

def tl_rank(worker: Scalar, name: str | None = None) -> tf.Tensor: ...
def tl_size(worker: Scalar, name: str | None = None) -> tf.Tensor:
    """Live workers."""

def tl_statistics(worker: Scalar, name: str | None = None) -> tf.Tensor:
    """A JSON object."""

def tl_prune(
    values: Values, density: Density, name: str | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """(pruned, rest): the largest of every 4,096 entries, and the others; zeros elsewhere."""

def tl_prune_gradient(
    gradient: Values, residual: Values, density: Density, bits: int = 32, name: str | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """(pruned, rest): what would be sent, and the residual of the next step."""

def tl_sparse_encode(
    values: Values, density: Density, bits: int = 32, name: str | None = None
) -> tf.Tensor:
    """The largest entries as a vector of bytes."""

def tl_sparse_decode(
    code: Values, shape: tf.Tensor | Sequence[int], name: str | None = None
) -> tf.Tensor:
    """The tensor of a code; zeros where it holds nothing."""
