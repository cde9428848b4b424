"""What the benchmark of training runs: how much of it, and with which settings.

docs/tuning.md says how the settings were found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# As many workers as there are cores: time counts. Of a larger team, steps count.
PAIR = 2
SLOW, FAST = "100mbit", "1gbit"

# Bytes and accuracy are measured with the default policy, and its defaults.
DEFAULT = "elastic"
# The policy that needs the fewest steps, and the share of one worker's steps that it is given.
QUICKEST = "gradient"
QUICKEST_STEPS = 0.5
# Of two workers time counts, and this one waits for nobody.
PAIR_POLICY = "local"
PAIR_STEPS = 0.625
# Settings that are not the defaults.
SETTINGS: dict[str, dict] = {
    "gradient": {"density": 0.1, "reply_density": 0.3, "bits": 4},
    "local": {"period": 4, "density": 0.03, "reply_density": 0.06},
}
# Which of a task's learning rates is taken where it is not tuned in the run: the best of those that
# bench/tune.py tried. Sparse averaging of a plain recurrent net wants half of dense averaging's.
_RATES = {"mlp": 2, "cnn": 2, "simple_rnn": 1, "lstm": 2}
_OTHER_RATES = {
    ("simple_rnn", "elastic"): 0,
    # Tuned in a whole run; this is for a part of one.
    ("cnn", "one"): 1,
}


def place_of_rate(task: str, policy: str) -> int:
    return _OTHER_RATES.get((task, policy), _RATES.get(task, 0))


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    team: int
    steps: dict[str, int]  # of each worker, by task
    seeds: tuple[int, ...]
    rates: int  # how many learning rates are tried
    evaluations: int
    policies: dict[str, tuple[str, ...]]  # of the team, by task
    peer_steps: int  # with which a strategy's bytes are counted
    speed_task: str
    speed_rounds: int
    speed_steps: int  # of each round, ours and the silent ones'
    slow_steps: int  # of strategies that wait for the network

    def steps_of(self, task: str, policy: str, workers: int) -> int:
        if policy == PAIR_POLICY and workers == PAIR < self.team:
            return int(PAIR_STEPS * self.steps[task])
        return int((QUICKEST_STEPS if policy == QUICKEST else 1) * self.steps[task])

    def announced(self, parts: Sequence[str]) -> int:
        """How many steps of progress there are, about."""
        tuned = self.rates + len(self.seeds) - 1
        counts = {
            "learning": sum(
                tuned * 3 // 2 + len(self.seeds) * (len(policies) - 1)
                for policies in self.policies.values()
            ),
            "pair": len(self.seeds),
            "strategies": 2,
            "speed": 4,
        }
        return sum(counts[part] for part in parts)


_ALL_POLICIES = ("elastic", "local", "gradient", "dense")
_NEEDED = (DEFAULT, QUICKEST, "dense")
FULL = Size(
    team=4,
    steps={"mlp": 4800, "cnn": 4800, "simple_rnn": 3000, "lstm": 3000},
    seeds=(0, 1, 2),
    rates=4,
    evaluations=10,
    policies={"mlp": _NEEDED, "cnn": _ALL_POLICIES, "simple_rnn": _NEEDED, "lstm": _NEEDED},
    peer_steps=30,
    speed_task="large_mlp",
    speed_rounds=5,
    speed_steps=20,
    slow_steps=3,
)
QUICK = Size(
    team=2,
    steps={"mlp": 60},
    seeds=(0,),
    rates=1,
    evaluations=2,
    policies={"mlp": _ALL_POLICIES},
    peer_steps=4,
    speed_task="mlp",
    speed_rounds=2,
    speed_steps=20,
    slow_steps=3,
)
