"""The native ops as a module: ``_ops.tl_step(...)``; loaded with the first use. See _ops.pyi."""

from typing import Any

from tensorlightning import _library


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    op = globals()[name] = getattr(_library.load(), name)
    return op
