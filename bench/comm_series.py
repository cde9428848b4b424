"""What the benchmark of comm has measured, turn by turn, beside what it is measured against."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median


@dataclass
class Series:
    unit: str
    measured: list[float]
    roof: list[float]
    by_round: list[float]
    # Whatever else was seen, for the JSON.
    details: dict = field(default_factory=dict)

    @classmethod
    def of_rates(cls, unit: str, pairs: Iterable[tuple[float, float]], **details) -> "Series":
        """From (ours, the roof's), of which more is better."""
        ours, roof = map(list, zip(*pairs, strict=True))
        return cls(unit, ours, roof, [a / b for a, b in zip(ours, roof, strict=True)], details)

    @classmethod
    def of_times(cls, pairs: Iterable[tuple[float, float]], **details) -> "Series":
        """Of seconds: the ratio is upside down, so that here too more is better."""
        series = cls.of_rates("s", pairs, **details)
        series.by_round = [1 / ratio for ratio in series.by_round]
        return series

    def shown(self) -> tuple[str, str]:
        """The medians, ours and the roof's, as people read them."""
        return tuple(_shown(median(values), self.unit) for values in (self.measured, self.roof))

    def to_json(self) -> dict:
        return {
            "unit": self.unit,
            "measured": median(self.measured),
            "roof": median(self.roof),
            **self.details,
            "measured_by_round": self.measured,
            "roof_by_round": self.roof,
        }


def _shown(value: float, unit: str) -> str:
    if unit == "bytes/s":
        return f"{value / 1e9:.2f} GB/s"
    if unit == "s":
        return f"{value * 1e3:.1f} ms" if value > 1e-3 else f"{value * 1e6:.1f} us"
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.1f} {unit}"
