"""A training with fit() whose gradients are averaged: the policies gradient and gradient-async."""

import contextlib
from typing import Any

from tensorlightning import environment, optimizer
from tensorlightning.gradient_averager import GradientAverager
from tensorlightning.options import Options


class Gradients:
    """One worker's part in it: hooks the model's optimizer for as long as it lasts."""

    def __init__(self, model: Any, options: Options, job: str, own: bool):
        self._model, self._own = model, own
        self._options = options
        self._hooked = self._xla = False
        momentum = optimizer.native_momentum(model.optimizer, options)
        self._averager = GradientAverager(options, job, momentum)

    def begin(self, built: bool = True) -> bool:
        """Hooks the optimizer, and joins if there are weights yet."""
        # A worker without others has nothing to average: plain training, XLA and all.
        if self._options.alone:
            return True
        model = self._model
        optimizer.hook_gradients(model.optimizer, self._averager)
        self._hooked = True
        self._xla = bool(model.jit_compile)
        if self._xla:
            model.jit_compile = False
            environment.say(
                f"has turned XLA off for this fit (jit_compile=False): policy="
                f"{self._options.policy!r} exchanges gradients inside the step, which XLA can't "
                "compile; policies that average weights keep it"
            )
        # fit() has made one before callbacks are told of its beginning.
        model.make_train_function(force=True)
        if built and model.trainable_variables:
            self._averager.join(model.trainable_variables)
        return True

    def step(self, steps: int) -> None:
        self._averager.step(steps)

    def statistics(self) -> dict[str, Any]:
        return self._averager.statistics()

    def centre(self) -> contextlib.AbstractContextManager[None]:
        """The model is the centre: all apply the same gradients."""
        return contextlib.nullcontext()

    def finish(self) -> None:
        try:
            self._averager.finish(self._model.weights, self._own)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leaves, and makes optimizer and model plain again."""
        if not self._hooked:
            return
        self._hooked = False
        self._averager.leave()
        optimizer.unhook(self._model.optimizer)
        if self._xla:
            self._model.jit_compile = True
        self._model.make_train_function(force=True)
