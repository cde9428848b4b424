"""How fast a model of ten million parameters trains: ours, silence, TensorFlow's strategies."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from train_fleet import Fleet, Spec
from train_models import TASKS
from train_peers import PeerOutcome, Peers
from train_plan import DEFAULT, PAIR, Size


@dataclass
class Speed:
    """Samples a second at one rate of the links."""

    link: str
    ours: list[float] = field(default_factory=list)  # by round
    silent: list[float] = field(default_factory=list)
    peers: dict[str, PeerOutcome] = field(default_factory=dict)

    def to_json(self) -> dict:
        return {
            "link": self.link,
            "ours": self.ours,
            "silent": self.silent,
            "peers": {name: outcome.to_json() for name, outcome in self.peers.items()},
        }


def ours_and_silence(fleet: Fleet, link: str, size: Size) -> Speed:
    """Workers that exchange, and the same ones that do not, in turns."""
    fleet.set_rate(link)
    speed = Speed(link)
    task = TASKS[size.speed_task]
    steps = (size.speed_rounds + 1) * size.speed_steps
    samples = PAIR * size.speed_steps * task.batch

    def spec(policy: str) -> Spec:
        return Spec(task.name, policy, PAIR, task.rates[0], steps)

    with (
        fleet.under_way(spec("none"), snapshots=False) as silent,
        fleet.under_way(spec(DEFAULT), snapshots=False) as ours,
    ):
        for number in range(1, size.speed_rounds + 2):
            quiet = silent.train(number * size.speed_steps)
            talking = ours.train(number * size.speed_steps)
            if number > 1:  # Once to warm up.
                speed.silent.append(samples / quiet)
                speed.ours.append(samples / talking)
        for run in (ours, silent):
            run.end()
    return speed


def of_strategy(peers: Peers, links: Sequence[str], size: Size) -> dict[str, PeerOutcome]:
    """By link."""
    peers.begin(size.speed_task, TASKS[size.speed_task].rates[0], 1000)
    done = 1
    peers.train(done)
    seen = {}
    for link in links:
        peers.set_rate(link)
        done += size.slow_steps
        seen[link] = peers.train(done)
    return seen
