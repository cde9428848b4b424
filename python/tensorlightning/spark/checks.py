"""Options that are wrong are said to be so in the driver, before anything runs."""

import math
import numbers
import operator
from typing import Any

# A worker gives a sign of life twice a second: less would kill the living.
LEAST_HANG_SECONDS = 2.0


def whole(name: str, value: Any, least: int = 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise ValueError(f"{name}={value!r}: {name} must be a whole number from {least} on")
    return number


def seconds(name: str, value: Any, least: float = 0.0) -> float:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number = value if is_number else math.nan
    if not (0 < number < math.inf and number >= least):
        how_many = f"from {least:g} on" if least else "above 0"
        raise ValueError(f"{name}={value!r}: {name} must be a number of seconds {how_many}")
    return float(number)


def hang_seconds(value: Any) -> float:
    return seconds("hang_seconds", value, LEAST_HANG_SECONDS)


def stall_seconds(value: Any) -> float:
    return seconds("stall_seconds", value)
