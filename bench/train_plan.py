"""What the benchmark of training runs: how much of it, and with which settings.

docs/tuning.md says how the settings were found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

# Workers of a team. On two cores their steps count, not their time.
TEAM = 4
# As many as there are cores: time counts.
PAIR = 2
SLOW, FAST = "100mbit", "1gbit"

# The policy that bytes and accuracy are measured with: the default, with its defaults.
DEFAULT = "elastic"
# One worker takes so many times the steps of a member of a team.
ONE_TAKES = 2
# What a learning rate is multiplied with, for every side alike; the best is taken by seed 0.
GRID = (0.5, 1.0, 2.0, 4.0)
# The policies whose learning is compared on the CNN, with settings that are not the defaults.
CURVES: dict[str, dict] = {"elastic": {}, "local": {}, "gradient": {}, "dense": {}}
# The one that is expected to need the fewest steps.
QUICKEST = "gradient"


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    steps: dict[str, int]  # of each worker of a team, by task
    seeds: tuple[int, ...]
    grid: tuple[float, ...]
    evaluations: int  # of a team's run; one worker has ONE_TAKES times as many
    peer_steps: int  # with which a strategy's bytes are counted
    peer_tasks: tuple[str, ...]
    speed_rounds: int
    speed_steps: int  # of each round, ours and the silent ones'
    slow_steps: int  # of strategies that wait for the network
    curves: tuple[str, ...] = field(default=tuple(CURVES))

    def pair_steps(self, task: str) -> int:
        """Of each of two workers: five eighths of those of one."""
        return self.steps[task] * ONE_TAKES * 5 // 8

    def announced(self, parts: Sequence[str]) -> int:
        """How many steps of progress there are, about."""
        runs = sum(1 + len(self.curves if task == "cnn" else (0, 0)) for task in self.steps)
        learning = runs * (len(self.grid) + len(self.seeds) - 1)
        counts = {"learning": learning, "pair": len(self.seeds), "strategies": 2, "speed": 4}
        return sum(counts[part] for part in parts)


FULL = Size(
    steps={"mlp": 2400, "cnn": 2400, "simple_rnn": 1200, "lstm": 1200},
    seeds=(0, 1, 2),
    grid=GRID,
    evaluations=12,
    peer_steps=30,
    peer_tasks=("mlp", "cnn", "simple_rnn", "lstm"),
    speed_rounds=5,
    speed_steps=20,
    slow_steps=3,
)
QUICK = Size(
    steps={"mlp": 60},
    seeds=(0,),
    grid=(1.0,),
    evaluations=2,
    peer_steps=4,
    peer_tasks=("mlp",),
    speed_rounds=2,
    speed_steps=20,
    slow_steps=3,
    curves=("elastic", "gradient", "dense"),
)
