"""Finds and loads libtensorlightning_tf.so, once, and ends what it started when Python exits."""

import atexit
import ctypes
import functools
import os
from pathlib import Path
from types import ModuleType

NAME = "libtensorlightning_tf.so"


def path() -> Path:
    """Where the library is: $TL_TF_LIBRARY, or beside this file."""
    if given := os.environ.get("TL_TF_LIBRARY"):
        if Path(given).is_file():
            return Path(given).resolve()
        raise ImportError(f"TL_TF_LIBRARY={given} names no file: unset it, or build that file")
    beside = Path(__file__).resolve().parent / NAME
    if beside.is_file():
        return beside
    raise ImportError(
        f"TensorLightning's ops are not built: there is no {beside}. "
        "In a clone run `make tf`; otherwise install the wheel, which has them"
    )


@functools.cache
def load() -> ModuleType:
    """The ops, as ``tf.load_op_library`` gives them."""
    import tensorflow as tf

    where = str(path())
    try:
        ops = tf.load_op_library(where)
    except tf.errors.NotFoundError as error:
        raise ImportError(
            f"{where} does not fit TensorFlow {tf.__version__}: build it anew "
            f"(`make tf`) with this TensorFlow. {error.message}"
        ) from error
    shutdown = ctypes.CDLL(where).tl_shutdown
    shutdown.restype = None
    # After TensorFlow's import, hence before whatever TensorFlow does at exit.
    atexit.register(shutdown)
    return ops
