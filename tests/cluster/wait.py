"""Waiting for what another process does: never for ever, so that a test ends."""

import time
from collections.abc import Callable

POLL_SECONDS = 0.02


def until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether the condition came true in time; for `assert until(...)`."""
    deadline = time.monotonic() + seconds
    while not (fulfilled := condition()) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return fulfilled
