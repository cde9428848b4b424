"""How well models learn: one worker beside teams of several policies, the same seeds for all."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from train_fleet import Fleet, Outcome, Spec
from train_models import TASKS, Task
from train_plan import PAIR, SETTINGS, Size, place_of_rate

# One worker's plateau is what it has at the end: the mean of so many evaluations.
PLATEAU_POINTS = 1


@dataclass
class Side:
    """The runs of one policy on one task, at the learning rate that was best for it."""

    policy: str
    outcomes: list[Outcome]  # by seed
    tried: list[Outcome]  # by learning rate

    @property
    def task(self) -> Task:
        return TASKS[self.outcomes[0].spec.task]

    @property
    def steps(self) -> list[int]:
        return [point.step for point in self.outcomes[0].curve]

    @property
    def seconds(self) -> list[float]:
        return [mean(o.curve[i].seconds for o in self.outcomes) for i in range(len(self.steps))]

    @property
    def values(self) -> list[float]:
        """The mean of the seeds."""
        return [mean(o.curve[i].value for o in self.outcomes) for i in range(len(self.steps))]

    @property
    def final(self) -> float:
        return self.values[-1]

    @property
    def best(self) -> float:
        return max(self.values) if self.task.more_is_better else min(self.values)

    @property
    def plateau(self) -> float:
        return mean(self.values[-PLATEAU_POINTS:])

    @property
    def bytes_per_sample(self) -> float:
        """While training."""
        return mean(o.training_bytes / o.spec.samples for o in self.outcomes)

    @property
    def whole_bytes_per_sample(self) -> float:
        """With those to begin and to end with."""
        return mean(o.whole_bytes / o.spec.samples for o in self.outcomes)

    def reaches(self, value: float) -> int | None:
        """The first evaluation that is at least as good, between which nothing is assumed."""
        for place, own in enumerate(self.values):
            if own >= value if self.task.more_is_better else own <= value:
                return place
        return None

    def to_json(self) -> dict:
        return {
            "policy": self.policy,
            "runs": [outcome.to_json() for outcome in self.outcomes],
            "tried": {str(o.spec.rate): round(o.value, 4) for o in self.tried},
        }


def mean(values) -> float:
    return statistics.fmean(values)


def spec_of(task: Task, policy: str, size: Size, workers: int) -> Spec:
    """At a learning rate that is known to be good."""
    return Spec(
        task.name,
        policy,
        workers,
        task.rates[place_of_rate(task.name, policy)],
        size.steps_of(task.name, policy, workers),
        seed=size.seeds[0],
        evaluations=size.evaluations,
        settings=SETTINGS.get(policy, {}),
    )


def learn(fleet: Fleet, first: Spec, size: Size, tuned: bool, said: Callable[[str], None]) -> Side:
    """Runs all seeds; `tuned`: at the learning rate that is the best one for the first of them."""
    rates = TASKS[first.task].rates[: size.rates] if tuned else [first.rate]
    tried = _run(fleet, [replace(first, rate=rate) for rate in rates], said)
    sign = -1 if TASKS[first.task].more_is_better else 1
    best = min(tried, key=lambda outcome: sign * outcome.value)
    others = [replace(best.spec, seed=seed) for seed in size.seeds[1:]]
    return Side(first.policy, [best, *_run(fleet, others, said)], tried)


def _run(fleet: Fleet, specs: Sequence[Spec], said: Callable[[str], None]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    if specs and specs[0].policy == "one":
        # As many at once as there are cores: a step then takes as long as a team's.
        for begin in range(0, len(specs), PAIR):
            outcomes += fleet.run_alone(specs[begin : begin + PAIR])
            said(f"{specs[begin].task}: one worker")
        return outcomes
    for spec in specs:
        outcomes.append(fleet.run(spec))
        said(f"{spec.task}: {spec.workers} workers, {spec.policy}, rate {spec.rate:g}")
    return outcomes
