"""A worker's last report as text: for the live lines, the plain ones and the table at the end.

A report is whatever a process has written to TL_REPORT_FD: every field may be missing or absurd.
"""

import math
from collections.abc import Mapping
from typing import Any

NOTHING = "-"
Report = Mapping[str, Any]


def number(report: Report, name: str) -> float | None:
    value = report.get(name)
    if type(value) not in (int, float) or abs(value) > 1e300:
        return None
    return float(value)


def steps(report: Report) -> str:
    value = number(report, "step")
    return NOTHING if value is None or not math.isfinite(value) else f"{value:,.0f}"


def loss(report: Report) -> str:
    return _significant(number(report, "loss"))


def rate(report: Report) -> str:
    value = number(report, "steps_per_s")
    return NOTHING if value is None else f"{value:.1f}"


def metrics(report: Report) -> list[tuple[str, str]]:
    """Names and values of at most two, the first ones."""
    given = report.get("metrics")
    if not isinstance(given, dict):
        return []
    return [(str(name)[:20], _significant(number(given, name))) for name in list(given)[:2]]


def moved_bytes(report: Report) -> float | None:
    sent, received = number(report, "sent"), number(report, "received")
    return None if sent is None and received is None else (sent or 0.0) + (received or 0.0)


def megabytes(report: Report) -> str:
    moved = moved_bytes(report)
    if moved is None or not math.isfinite(moved):
        return NOTHING
    return f"{moved / 1e6:.2f}" if moved < 1e8 else f"{moved / 1e6:,.0f}"


def times_fewer(report: Report) -> str:
    """How many times more bytes dense exchanges would have moved.

    Nothing in a training's first seconds, when the first weights are most of what has moved.
    """
    moved, dense = moved_bytes(report), number(report, "dense")
    if not moved or not dense or not math.isfinite(dense / moved) or dense < moved or moved < 0:
        return NOTHING
    return f"{dense / moved:.1f}x" if dense / moved < 10 else f"{dense / moved:,.0f}x"


def density(report: Report) -> str:
    value = number(report, "density")
    return NOTHING if value is None else f"{100 * value:.3g}%"


def staleness(report: Report) -> str:
    value = number(report, "staleness")
    return NOTHING if value is None else f"{value:.1f}"


def sentence(report: Report) -> str:
    """One line of what is known: `step 120, loss 0.43, 41.2 steps/s, ...`."""
    parts = [
        ("step {}", steps(report)),
        ("loss {}", loss(report)),
        *((f"{_plain(name)} {{}}", value) for name, value in metrics(report)),
        ("{} steps/s", rate(report)),
        ("{} MB moved", megabytes(report)),
        ("{} fewer than dense", times_fewer(report)),
    ]
    return ", ".join(text.format(value) for text, value in parts if value != NOTHING)


def _plain(name: str) -> str:
    return "".join(c if c.isprintable() and c not in "{}" else "?" for c in name)


def _significant(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4g}"
