"""A solver's file, made fit for tasks that are fed by Spark.

    solver = SolverFile(Path("solver.prototxt").read_text(), "solver.prototxt")
    solver.settings                # of tensorlightning_param
    solver.for_tasks(epochs=3)     # the text, and when to end

What it says about nets, tests, displays and snapshots is the trainer's to say, and left out.
"""

from dataclasses import dataclass
from typing import Any

from tensorlightning.caffe import prototxt
from tensorlightning.caffe.prototxt import Message
from tensorlightning.spark.job import SETTINGS

BLOCK = "tensorlightning_param"
# All that names files of the driver, or would write some in each task.
_LEFT_OUT = (
    *("net", "train_net", "net_param", "train_net_param", "weights"),
    *("test_net", "test_net_param", "test_state", "test_iter", "test_interval"),
    *("test_compute_loss", "test_initialization", "snapshot", "snapshot_prefix"),
    *("snapshot_diff", "snapshot_format", "snapshot_after_train", "display"),
)
# Its rate is 0 at max_iter, and no number afterwards.
_ENDS_WITH_MAX_ITER = "poly"


@dataclass(frozen=True)
class Steps:
    """What tasks need to know of a solver."""

    text: str
    iter_size: int  # Batches of an iteration.
    iterations: int | None  # Of each worker, at most. None: epochs decide.
    rate_changes: bool  # With the number of the iteration.


class SolverFile:
    """A solver as it was written. What is wrong is a ValueError that names file and line."""

    def __init__(self, text: str, name: str = "solver"):
        self._name = name
        self._solver = prototxt.parse(text, name)
        self.settings = self._settings()

    @property
    def net(self) -> str | Message | None:
        """Where its net is, or the net itself."""
        for name in ("net", "train_net", "net_param", "train_net_param"):
            if (found := self._solver.value(name)) is not None:
                return found
        return None

    @property
    def weights(self) -> list[str]:
        """Files of weights to begin with."""
        # Caffe also takes several in one text.
        given = self._solver.values("weights")
        return [name.strip() for names in given for name in names.split(",") if name.strip()]

    def for_tasks(self, epochs: int | None) -> Steps:
        most = self._solver.value("max_iter")
        if epochs is None and not (isinstance(most, int) and most > 0):
            raise ValueError(f"{self._name}: how long is it to train? epochs= or max_iter says it")
        policy = self._solver.value("lr_policy")
        ends = epochs is None or policy == _ENDS_WITH_MAX_ITER
        kept = [each for each in self._solver.fields if each.name not in (*_LEFT_OUT, BLOCK)]
        tree = Message(kept)
        if policy != _ENDS_WITH_MAX_ITER:
            # Then the worker itself ends it, and can say if the last exchange fails.
            tree.remove("max_iter")
        # A worker that ends needs no centre: the driver fetches it for all.
        tree.add(BLOCK, Message().add("model", "own"))
        return Steps(
            text=prototxt.text(tree),
            iter_size=int(self._solver.value("iter_size", 1)),
            iterations=most if ends else None,
            rate_changes=policy not in (None, "fixed"),
        )

    def _settings(self) -> dict[str, Any]:
        block = self._solver.message(BLOCK)
        # Which model tests and snapshots are of; here they are always of the centre.
        given = [each.name for each in block.fields if each.name != "model"]
        for name in given:
            if name not in SETTINGS:
                raise ValueError(
                    f"{self._name}:{block.line(name)}: {BLOCK} has {name}, and on Spark there are "
                    f"{', '.join(SETTINGS)}; all else is CaffeTrainer's to say"
                )
        return {name: block.value(name) for name in given}
