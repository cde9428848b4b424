"""Settings of an exchange: keyword arguments, TL_* variables of the same names, checked early.

What is given by neither is left to the native library, which has the defaults.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

AVERAGING = ("elastic", "local", "dense")
GRADIENT = ("gradient", "gradient-async")
POLICIES = AVERAGING + GRADIENT
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class _Setting:
    """How a value is read, and what is allowed."""

    read: Callable[[Any], Any]
    allowed: Callable[[Any], bool]
    text: str


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError
    return float(value)


def _one_of(*names: str) -> _Setting:
    return _Setting(str, lambda name: name in names, "one of " + ", ".join(names))


_SHARE = _Setting(_number, lambda share: 0 < share <= 1, "a number above 0 and up to 1")
_TEXT = _Setting(os.fspath, lambda text: text and "\n" not in text, "a text of one line")
_SETTINGS = {
    "period": _Setting(_whole, lambda steps: steps >= 1, "a whole number of steps from 1 on"),
    "beta": _SHARE,
    "density": _SHARE,
    "reply_density": _SHARE,
    "bits": _Setting(_whole, lambda bits: bits in (2, 4, 8, 16, 32), "2, 4, 8, 16 or 32"),
    "policy": _one_of(*POLICIES),
    "when": _one_of("period", "adaptive"),
    "change": _Setting(_number, lambda share: 0 < share < 1e6, "a number above 0"),
    "aggregator": _TEXT,
    "secret_file": _TEXT,
    "patience": _Setting(_number, lambda s: 0 < s < 1e6, "a number of seconds above 0"),
}
# These the native library finds in the environment itself.
_READ_NATIVELY = ("aggregator", "secret_file")


def _checked(name: str, value: Any, source: str) -> Any:
    setting = _SETTINGS[name]
    if name == "policy" and value == "gossip":
        raise ValueError(f"{source}: gossip does not exist yet; there are {', '.join(POLICIES)}")
    try:
        read = setting.read(value)
        fits = setting.allowed(read)
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ValueError(f"{source}: {name} must be {setting.text}")
    return read


@dataclass(frozen=True)
class Options:
    """Checked settings. None: as the native library has it."""

    period: int | None = None
    beta: float | None = None
    density: float | None = None
    reply_density: float | None = None
    bits: int | None = None
    policy: str | None = None
    when: str | None = None
    change: float | None = None
    aggregator: str | None = None
    secret_file: str | None = None
    patience: float = PATIENCE_SECONDS

    @classmethod
    def make(cls, **given: Any) -> "Options":
        """From keyword arguments and, where they are None or missing, from TL_* variables."""
        names = [field.name for field in fields(cls)]
        if unknown := sorted(set(given) - set(names)):
            raise TypeError(f"there is no option {unknown[0]!r}; there are {', '.join(names)}")
        values = {}
        for name in names:
            variable = f"TL_{name.upper()}"
            if given.get(name) is not None:
                values[name] = _checked(name, given[name], f"{name}={given[name]!r}")
            elif name not in _READ_NATIVELY and (text := os.environ.get(variable)):
                values[name] = _checked(name, text, f"{variable}={text}")
        return cls(**values)

    @property
    def averages_gradients(self) -> bool:
        """Gradients are exchanged, and not weights."""
        return self.policy in GRADIENT

    @property
    def alone(self) -> bool:
        """Nobody else can ever take part: no launcher, no aggregator."""
        from tensorlightning import environment

        named = self.aggregator or os.environ.get("TL_AGGREGATOR")
        return environment.size() == 1 and not named

    def native(self, **others: Any) -> str:
        """As the op tl_join wants them; `others` win."""
        values = {field.name: getattr(self, field.name) for field in fields(self)} | others
        return "".join(f"{key}={value}\n" for key, value in values.items() if value is not None)
