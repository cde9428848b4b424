"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever its main thread happens to be. Inside TensorFlow and Keras
that can be a place whose exceptions are dropped: a __del__, or a function that C++ calls and whose
failure it takes for "no". Training then goes on as if nothing had happened. A fit() with tl.Elastic
remembers the Ctrl-C, and raises it again after the step.
"""

import signal
import threading
from types import FrameType

_interrupted = False


def watch() -> None:
    """From now on Ctrl-C is remembered; what came before is forgotten.

    Only where Ctrl-C means KeyboardInterrupt: a handler of the user's own is left alone.
    """
    global _interrupted
    _interrupted = False
    if threading.current_thread() is not threading.main_thread():
        return  # Only the main thread may set handlers.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _remember)


def check() -> None:
    """Raises a KeyboardInterrupt that has been raised before, and was dropped."""
    if _interrupted and threading.current_thread() is threading.main_thread():
        watch()
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    global _interrupted
    _interrupted = True
    signal.default_int_handler(number, frame)
