"""How fast a model of ten million parameters trains: ours, silence, TensorFlow's strategies."""

from dataclasses import dataclass, field

import train_peers
from train_fleet import Fleet, Spec
from train_models import TASKS
from train_peers import PeerOutcome
from train_plan import DEFAULT, PAIR, Size

TASK = "large_mlp"


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
    steps = (size.speed_rounds + 1) * size.speed_steps
    rate = TASKS[TASK].rate
    samples = PAIR * size.speed_steps * TASKS[TASK].batch
    with (
        fleet.under_way(Spec(TASK, "none", PAIR, rate, steps), snapshots=False) as silent,
        fleet.under_way(Spec(TASK, DEFAULT, PAIR, rate, steps), snapshots=False) as ours,
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


def strategies(strategy: str, links: list[str], size: Size) -> dict[str, PeerOutcome]:
    """By link."""
    seen = {}
    with train_peers.peers(strategy, PAIR, links[0]) as (peers, hosts):
        peers.begin(TASK, TASKS[TASK].rate, 1000)
        peers.train(1)
        done = 1
        for link in links:
            for host in hosts:
                host.set_rate(link)
            done += size.slow_steps
            seen[link] = peers.train(done)
    return seen
