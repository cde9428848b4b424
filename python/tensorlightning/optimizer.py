"""Keras's optimizers, hooked in place: what they are asked for stays theirs, config and all.

The optimizer's class is replaced by a subclass that looks like it (same name, same module), so that
saving a model writes the plain optimizer, and loading gives it back.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tensorlightning import _ops
from tensorlightning.gradient_averager import GradientAverager
from tensorlightning.options import Options
from tensorlightning.worker import NOBODY, Worker, next_job, slot

_STATE = "_tensorlightning"


def DistributedOptimizer(  # noqa: N802  Horovod's name.
    optimizer: Any, policy: str | None = None, **settings: Any
) -> Any:
    """Makes an optimizer work with those of the other workers: in place, and returns it.

    >>> model.compile(optimizer=tl.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))

    `policy`: "gradient" (the default: everybody's mean of the gradients, pruned, in step),
    "gradient-async" (the same without waiting), or "elastic", "local" and "dense", which average
    weights after each step. `settings` are those of tl.Elastic: period, density, bits, ...

    It joins with the first step: then all workers have rank 0's weights. With SGD's momentum,
    gradients are accelerated before they are pruned. Clipping and weight decay stay as they are.
    It leaves when the process ends. XLA can't compile it: model.compile(jit_compile=False) where
    there is a GPU. One worker without a launcher: the optimizer is left as it is.
    """
    plain = _optimizer_inside(optimizer)
    if hasattr(plain, _STATE) or hasattr(optimizer, _STATE):
        raise ValueError("this optimizer has been made distributed already")
    chosen = Options.make(policy=policy, **settings)
    if chosen.policy is None:
        chosen = Options.make(policy="gradient", **settings)
    if chosen.averages_gradients:
        momentum = native_momentum(plain, chosen)
        if not chosen.alone:
            averager = GradientAverager(chosen, next_job(), momentum, counts_steps=True)
            hook_gradients(plain, averager)
    else:
        _install(optimizer, _with_averaged_weights(type(optimizer)), _WeightsHook(chosen))
    return optimizer


def hook_gradients(optimizer: Any, averager: GradientAverager) -> None:
    """The optimizer's gradients go through `averager`, which joins with the first step."""
    optimizer = _optimizer_inside(optimizer)
    if hasattr(optimizer, _STATE):
        raise ValueError(
            "the optimizer exchanges gradients already: use either tl.DistributedOptimizer or "
            "tl.Elastic(policy='gradient')"
        )
    _install(optimizer, _with_averaged_gradients(type(optimizer)), averager)


def unhook(optimizer: Any) -> None:
    """The optimizer is plain again. No harm if it is."""
    optimizer = _optimizer_inside(optimizer)
    if hasattr(optimizer, _STATE):
        object.__setattr__(optimizer, "__class__", type(optimizer).__mro__[1])
        object.__delattr__(optimizer, _STATE)


def native_momentum(optimizer: Any, chosen: Options) -> float:
    """What the native library has to do of the optimizer's momentum."""
    optimizer = _optimizer_inside(optimizer)
    if not isinstance(optimizer, keras.optimizers.SGD) or not optimizer.momentum:
        return 0.0
    if not optimizer.nesterov:
        return optimizer.momentum
    if chosen.density == 1:
        return 0.0  # Nothing is pruned, so the optimizer's own is right.
    raise ValueError(
        f"policy={chosen.policy!r} prunes gradients, and has no Nesterov momentum for that: use "
        "SGD(nesterov=False), or density=1"
    )


def _optimizer_inside(optimizer: Any) -> Any:
    """The one that gets unscaled gradients."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(f"{optimizer!r} is no optimizer of Keras 3")
    if type(optimizer).__name__ == "MultiOptimizer":
        raise ValueError(
            "MultiOptimizer hands gradients to several optimizers: use a policy that averages "
            "weights, as in tl.Elastic(policy='local')"
        )
    return optimizer


def _install(optimizer: Any, hooked: type, state: Any) -> None:
    # Past Keras's own __setattr__, which would track it.
    object.__setattr__(optimizer, _STATE, state)
    object.__setattr__(optimizer, "__class__", hooked)


def _disguised(hooked: type, plain: type) -> type:
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(hooked, name, getattr(plain, name))
    # In files it is called keras.optimizers.SGD then, and not by the place of Keras's source.
    with contextlib.suppress(ImportError, AttributeError):
        from keras.src import api_export

        if public := api_export.get_name_from_symbol(plain):
            api_export.REGISTERED_OBJS_TO_NAMES[hooked] = public
    return hooked


@contextlib.contextmanager
def _without_momentum(optimizer: Any, applies: bool) -> Iterator[None]:
    """The optimizer must not do again what the native library has done."""
    if not applies:
        yield
        return
    momentum = optimizer.momentum
    object.__setattr__(optimizer, "momentum", 0.0)
    try:
        yield
    finally:
        object.__setattr__(optimizer, "momentum", momentum)


@functools.cache
def _with_averaged_gradients(plain: type) -> type:
    class Hooked(plain):  # type: ignore[misc, valid-type]
        # Where gradients are unscaled, accumulated and clipped, and not yet applied.
        def _backend_update_step(
            self, grads: Sequence[Any], trainable_variables: Sequence[Any], learning_rate: Any
        ) -> None:
            averager: GradientAverager = getattr(self, _STATE)
            if averager.worker is None:
                with tf.init_scope():
                    averager.join(self._trainable_variables)
            update = super()._backend_update_step

            def together() -> tf.Tensor:
                means = averager.mean(grads, self._var_key, trainable_variables)
                with _without_momentum(self, averager.momentum > 0):
                    update(means, trainable_variables, learning_rate)
                averager.after_update()
                return tf.constant(True)

            def alone() -> tf.Tensor:
                update(grads, trainable_variables, learning_rate)
                return tf.constant(False)

            # A graph outlives the training that it was made for.
            tf.cond(averager.joined(), together, alone)

    return _disguised(Hooked, plain)


class _WeightsHook:
    """Weights are averaged after each step."""

    def __init__(self, chosen: Options):
        self._options, self._job = chosen, next_job()
        self._number = slot()
        self._worker: Worker | None = None

    def join(self, trainable: Sequence[Any]) -> None:
        if self._worker is None:
            with tf.init_scope():
                self._worker = Worker(trainable, self._options, self._job, number=self._number)
                self._worker.join()

    def step(self) -> None:
        worker = self._worker
        tf.cond(
            tf.not_equal(self._number, NOBODY),
            lambda: _ops.tl_step(self._number, tf.constant(1, tf.int64), worker.handles),
            lambda: tf.constant(False),
        )


@functools.cache
def _with_averaged_weights(plain: type) -> type:
    class Hooked(plain):  # type: ignore[misc, valid-type]
        def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
            state: _WeightsHook = getattr(self, _STATE)
            known = trainable_variables or self._trainable_variables
            trainable_variables = None if trainable_variables is None else list(known)
            state.join(list(known))
            super().apply(grads, trainable_variables)
            state.step()

    return _disguised(Hooked, plain)
