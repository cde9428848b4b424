"""A Keras model as bytes and back, and what it takes and gives.

It is kept as a .keras file, from which Keras builds it without any code of the user's. If that
can't be (classes that Keras does not know, Lambda layers), build_model() builds it and the weights
come from the file.
"""

import contextlib
import importlib
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.serializers import CloudPickleSerializer

WHOLE = "model.keras"
WEIGHTS = "model.weights.h5"
# tf_keras is Keras 2, for those who still need it.
LIBRARIES = ("keras", "tf_keras")

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Array:
    """What an input takes, or an output gives: for one row."""

    shape: Shape
    dtype: str

    @classmethod
    def of(cls, tensor: Any) -> "Array":
        return cls(tuple(tensor.shape)[1:], getattr(tensor.dtype, "name", tensor.dtype))


@dataclass(frozen=True)
class Signature:
    """All of a model's inputs and outputs."""

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]


@dataclass(frozen=True)
class SavedModel:
    """A trained model, fit to be sent and kept."""

    file: str  # WHOLE or WEIGHTS
    content: bytes
    build_model: bytes  # pickled
    signature: Signature
    library: str = LIBRARIES[0]


def pickled(build_model: Callable[[], Any]) -> bytes:
    """As it goes to the executors, and into files."""
    try:
        return CloudPickleSerializer().dumps(build_model)
    except Exception as error:
        raise ValueError(
            f"build_model can't be sent to the executors: {error}. It must make everything it "
            "needs itself, and must not use models, sessions or open files of the driver"
        ) from error


def unpickled(build_model: bytes) -> Callable[[], Any]:
    try:
        return CloudPickleSerializer().loads(build_model)
    except Exception as error:
        raise ValueError(
            f"the saved build_model can't be read here: {error}. Modules that it was defined in "
            "or that it uses must be installed, and Python be of the same version"
        ) from error


def build(build_model: Callable[[], Any]) -> Any:
    """What build_model returns, if that can be trained."""
    model = build_model()
    if not hasattr(model, "fit") or not hasattr(model, "get_weights"):
        raise TypeError(f"build_model has returned {model!r:.100}, and not a Keras model")
    if getattr(model, "optimizer", None) is None:
        raise ValueError("build_model has returned a model that is not compiled: call compile()")
    return model


def signature(model: Any) -> Signature | None:
    """None: not known before it has seen data."""
    try:
        inputs, outputs = model.inputs, model.outputs
    except (AttributeError, ValueError):  # The latter from a Sequential without an Input.
        return None
    if not inputs or not outputs:
        return None
    return Signature(tuple(map(Array.of, inputs)), tuple(map(Array.of, outputs)))


def show_rows(model: Any, arrays: Sequence[np.ndarray]) -> Signature:
    """Builds a model that has no weights before it sees data; returns what was seen."""
    with _quiet():
        outputs = model(arrays[0] if len(arrays) == 1 else list(arrays), training=False)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return Signature(tuple(map(Array.of, arrays)), tuple(map(Array.of, outputs)))


def save(model: Any, build_model: bytes, about: Signature) -> SavedModel:
    library = _library_of(model)
    with tempfile.TemporaryDirectory(prefix="tensorlightning-") as folder:
        path = Path(folder) / WHOLE
        try:
            with _quiet():
                model.save(path)
        except Exception:  # A class that does not say how it is made; then its weights do.
            path = Path(folder) / WEIGHTS
            model.save_weights(path)
        return SavedModel(path.name, path.read_bytes(), build_model, about, library)


def load(saved: SavedModel, *, to_train: bool) -> Any:
    """The model again; compiled, if it is to be trained (or evaluated)."""
    keras = importlib.import_module(saved.library)
    with tempfile.TemporaryDirectory(prefix="tensorlightning-") as folder:
        path = Path(folder) / saved.file
        path.write_bytes(saved.content)
        if saved.file == WEIGHTS:
            return _build_anew(saved, path)
        try:
            with _quiet():
                return keras.models.load_model(path, compile=to_train)
        except Exception as unloadable:  # Keras raises whatever comes to its mind.
            try:
                return _build_anew(saved, path)
            except Exception as error:
                raise ValueError(
                    f"the model can't be loaded ({_line(unloadable)}), "
                    f"nor built anew by build_model ({_line(error)})"
                ) from error


def _build_anew(saved: SavedModel, path: Path) -> Any:
    model = build(unpickled(saved.build_model))
    if signature(model) is None:
        show_rows(model, [_zeros(array) for array in saved.signature.inputs])
    model.load_weights(path)
    return model


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keras warns of much that is meant to be: no optimizer's state, names of inputs, ..."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _zeros(array: Array) -> np.ndarray:
    return np.zeros([1, *(size or 1 for size in array.shape)], array.dtype)


def _library_of(model: Any) -> str:
    for name in LIBRARIES:
        if name in sys.modules and isinstance(model, sys.modules[name].Model):
            return name
    return LIBRARIES[0]


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]:.200}"
