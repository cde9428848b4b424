"""Finds and loads libtensorlightning_tf.so, once, and ends what it started when Python exits."""

import atexit
import ctypes
import functools
import os
import re
import sys
from pathlib import Path
from types import ModuleType

from tensorlightning import _files

NAME = "libtensorlightning_tf.so"
FOR_OTHERS_MS = 600_000


def path() -> Path:
    """Where the library is: $TL_TF_LIBRARY, or the package's own."""
    if given := os.environ.get("TL_TF_LIBRARY"):
        if Path(given).is_file():
            return Path(given).resolve()
        raise ImportError(f"TL_TF_LIBRARY={given} names no file: unset it, or build that file")
    if own := _files.find(NAME):
        return own
    raise ImportError(
        f"TensorLightning's ops are not built: there is no {_files.PACKAGE / NAME}. "
        "In a clone run `make tf`; otherwise install the wheel, which has them"
    )


def built_for(library: Path) -> str | None:
    """The version of TensorFlow that the library was built for: a text inside tells it."""
    found = re.search(rb"TensorLightning for TensorFlow ([\w.+-]+)", library.read_bytes())
    return found[1].decode() if found else None


def _import_tensorflow(wanted: str | None) -> ModuleType:
    """TensorFlow, if it is the one that the library was built for: in another it may crash."""
    minor = ".".join(wanted.split(".")[:2]) if wanted else "2"
    install = f"pip install tensorflow-cpu=={minor}.* (or tensorflow=={minor}.*, for GPUs)"
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise ImportError(f"TensorLightning needs TensorFlow {minor}: {install}") from error
    if wanted and not tf.__version__.startswith(f"{minor}."):
        raise ImportError(
            f"this TensorLightning was built for TensorFlow {wanted}, and here is "
            f"{tf.__version__}: {install}, or build it anew (`make tf`)"
        )
    return tf


@functools.cache
def load() -> ModuleType:
    """The ops, as ``tf.load_op_library`` gives them."""
    where = str(path())
    tf = _import_tensorflow(built_for(Path(where)))
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
    atexit.register(lambda: shutdown(_milliseconds_for_others()))
    return ops


def _milliseconds_for_others() -> int:
    """How long an aggregator in this process stays for other workers when Python exits."""
    failed = getattr(sys, "last_value", None) is not None
    return 0 if failed else FOR_OTHERS_MS
