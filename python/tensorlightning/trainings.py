"""Which training a model takes part in: callbacks of one fit() find each other's here."""

import contextlib
import weakref
from typing import Any, Protocol


class Training(Protocol):
    """Averaging or Gradients."""

    def begin(self, built: bool = True) -> bool: ...
    def step(self, steps: int) -> None: ...
    def statistics(self) -> dict[str, Any]: ...
    def centre(self) -> contextlib.AbstractContextManager[None]: ...
    def finish(self) -> None: ...
    def abandon(self) -> None: ...


_of_model: "weakref.WeakKeyDictionary[Any, Training]" = weakref.WeakKeyDictionary()


def register(model: Any, training: Training) -> None:
    _of_model[model] = training


def of(model: Any) -> Training:
    return _of_model[model]


def forget(model: Any) -> None:
    _of_model.pop(model, None)


def abandon(model: Any) -> None:
    """Leaves the training of a fit() that was not finished, if there is one."""
    if (training := _of_model.pop(model, None)) is not None:
        training.abandon()


def centre_of(model: Any) -> contextlib.AbstractContextManager[None]:
    """The model holds the centre inside; if it takes part in no training, it is left as it is."""
    training = _of_model.get(model)
    return contextlib.nullcontext() if training is None else training.centre()
