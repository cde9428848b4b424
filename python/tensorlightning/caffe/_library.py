"""Finds and loads libtensorlightning_caffe_driver.so, described in driver.h."""

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

from tensorlightning import _files

NAME = "libtensorlightning_caffe_driver.so"
MAX_AXES = 32
ERROR_BYTES = 4096


class CaffeError(RuntimeError):
    """What Caffe, or the exchange of a distributed solver, has found wrong."""


class Array(ctypes.Structure):
    """tl_caffe_array"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("index", ctypes.c_int32),
        ("axes", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_AXES),
        ("data", ctypes.POINTER(ctypes.c_float)),
    ]


_SOLVER = ctypes.c_void_p
_FLOATS = ctypes.POINTER(ctypes.c_float)
_ERROR = (ctypes.c_char_p, ctypes.c_size_t)
_ARRAY = ctypes.POINTER(Array)
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "create": (_SOLVER, (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, *_ERROR)),
    "create_test": (ctypes.c_int, (_SOLVER, *_ERROR)),
    "feed": (
        ctypes.c_int,
        (_SOLVER, ctypes.c_int, ctypes.c_char_p, _FLOATS, _FLOATS, ctypes.c_int64, *_ERROR),
    ),
    "step": (
        ctypes.c_int,
        (_SOLVER, ctypes.c_int, ctypes.POINTER(ctypes.c_double), *_ERROR),
    ),
    "interrupt": (None, (_SOLVER, ctypes.c_int)),
    "iteration": (ctypes.c_int, (_SOLVER,)),
    "join": (ctypes.c_int, (_SOLVER, ctypes.c_int, *_ERROR)),
    "statistics": (ctypes.c_char_p, (_SOLVER,)),
    "forward_test": (ctypes.c_int, (_SOLVER, *_ERROR)),
    "parameter": (ctypes.c_int, (_SOLVER, ctypes.c_int, _ARRAY)),
    "input": (ctypes.c_int, (_SOLVER, ctypes.c_int, ctypes.c_int, _ARRAY)),
    "output": (ctypes.c_int, (_SOLVER, ctypes.c_int, ctypes.c_int, _ARRAY)),
    "blob": (ctypes.c_int, (_SOLVER, ctypes.c_int, ctypes.c_char_p, _ARRAY)),
    "snapshot": (ctypes.c_int, (_SOLVER, ctypes.c_char_p, *_ERROR)),
    "finish": (ctypes.c_int, (_SOLVER, *_ERROR)),
    "close": (ctypes.c_int, (_SOLVER, *_ERROR)),
    "free": (None, (_SOLVER,)),
}


def path() -> Path:
    """Where the library is: $TL_CAFFE_DRIVER, or the package's own."""
    if given := os.environ.get("TL_CAFFE_DRIVER"):
        if Path(given).is_file():
            return Path(given).resolve()
        raise ImportError(f"TL_CAFFE_DRIVER={given} names no file: unset it, or build that file")
    if own := _files.find(NAME):
        return own
    raise ImportError(
        f"TensorLightning's driver for Caffe is not built: there is no {_files.PACKAGE / NAME}. "
        "In a clone run `make caffe`"
    )


@functools.cache
def load() -> ctypes.CDLL:
    where = path()
    # TensorFlow has another protobuf, of the same names: each must find its own.
    mode = os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND
    try:
        library = ctypes.CDLL(str(where), mode=mode)
    except OSError as error:
        raise ImportError(
            f"{where} can't be loaded: {error}. Has Caffe moved? `make caffe` builds it anew"
        ) from error
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, f"tl_caffe_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def call(name: str, *arguments: Any) -> Any:
    """tl_caffe_<name>, of those that can fail; its sentence becomes a CaffeError."""
    error = ctypes.create_string_buffer(ERROR_BYTES)
    result = getattr(load(), f"tl_caffe_{name}")(*arguments, error, ERROR_BYTES)
    failed = result is None if name == "create" else result != 0
    if failed:
        raise CaffeError(error.value.decode(errors="replace"))
    return result
