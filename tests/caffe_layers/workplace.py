"""A folder with a small net, its solver and data, where the stock caffe binary trains.

place = Workplace(tmp_path)
place.write_solver("max_iter: 60", line="tensorlightning_param { period: 5 }")
assert place.train().accuracy > 0.8
"""

import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import caffe_stock
import h5py
import numpy as np

# Large enough for steps of milliseconds: two workers meet before one has ended.
FEATURES, CLASSES, HIDDEN = 24, 4, 320
PARAMETERS = (FEATURES + 1) * HIDDEN + (HIDDEN + 1) * HIDDEN + (HIDDEN + 1) * CLASSES
DEADLINE_S = 120

SOLVER = {
    "net": '"net.prototxt"',
    "test_iter": 4,
    "test_interval": 1000,
    "base_lr": 0.05,
    "momentum": 0.9,
    "lr_policy": '"fixed"',
    "snapshot_prefix": '"shot"',
    "random_seed": 3,
    "solver_mode": "CPU",
}

NET = """\
name: "small"
layer {{ name: "data" type: "HDF5Data" top: "data" top: "label" include {{ phase: TRAIN }}
  hdf5_data_param {{ source: "train.txt" batch_size: 128 }} }}
layer {{ name: "data" type: "HDF5Data" top: "data" top: "label" include {{ phase: TEST }}
  hdf5_data_param {{ source: "test.txt" batch_size: 100 }} }}
{layers}
layer {{ name: "accuracy" type: "Accuracy" bottom: "scores" bottom: "label" top: "accuracy"
  include {{ phase: TEST }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "label" top: "loss" }}
"""


def dense(name: str, bottom: str, outputs: int, extra: str = "", top: str | None = None) -> str:
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{top or name}" '
        f"{extra} inner_product_param {{ num_output: {outputs} "
        'weight_filler { type: "xavier" } } }'
    )


LAYERS = "\n".join(
    [
        dense("hidden", "data", HIDDEN),
        'layer { name: "relu" type: "ReLU" bottom: "hidden" top: "hidden" }',
        dense("more", "hidden", HIDDEN),
        'layer { name: "relu2" type: "ReLU" bottom: "more" top: "more" }',
        dense("scores", "more", CLASSES),
    ]
)


@dataclass(frozen=True)
class Ran:
    """What a training has said."""

    status: int
    text: str

    @property
    def accuracy(self) -> float:
        """The last test's."""
        return float(re.findall(r"accuracy = ([\d.e-]+)", self.text)[-1])

    @property
    def tested_at(self) -> list[int]:
        return [int(step) for step in re.findall(r"Iteration (\d+), Testing net", self.text)]


class Workplace:
    def __init__(self, folder: Path, layers: str = LAYERS):
        self.folder = folder
        (folder / "net.prototxt").write_text(NET.format(layers=layers))
        random = np.random.default_rng(5)
        truth = random.normal(size=(FEATURES, CLASSES))
        self.write_data("train", random.normal(size=(2048, FEATURES)), truth)
        self.write_data("test", random.normal(size=(400, FEATURES)), truth)

    def write_data(self, name: str, x: np.ndarray, truth: np.ndarray) -> None:
        self.write_rows(name, x, np.argmax(x @ truth, axis=1))

    def write_rows(self, name: str, x: np.ndarray, y: np.ndarray) -> None:
        path = self.folder / f"{name}.h5"
        # As Caffe's HDF5 library can read it.
        with h5py.File(path, "w", libver=("earliest", "v110")) as file:
            file["data"] = x.astype(np.float32)
            file["label"] = y.astype(np.float32)
        (self.folder / f"{name}.txt").write_text(f"{path}\n")

    def write_solver(self, line: str = "", **fields) -> None:
        """Its usual fields, these, and then the line."""
        lines = [f"{name}: {value}" for name, value in (SOLVER | fields).items()]
        (self.folder / "solver.prototxt").write_text("\n".join([*lines, line]) + "\n")

    def command(self, *arguments: str) -> list[str]:
        return [str(caffe_stock.program()), "train", "--solver=solver.prototxt", *arguments]

    def train(self, *arguments: str, plugin: bool = True, **variables: str) -> Ran:
        environment = caffe_stock.environment(**variables)
        if not plugin:
            del environment["TL_CAFFE_PLUGIN"]
        return self._run(self.command(*arguments), environment)

    def tlrun(self, *arguments: str, workers: int = 2, options: tuple[str, ...] = ()) -> Ran:
        launcher = [sys.executable, "-m", "tensorlightning.launch", "-np", str(workers), *options]
        return self._run([*launcher, *self.command(*arguments)], caffe_stock.environment())

    def start(self, command: list[str], **variables: str) -> subprocess.Popen:
        """In the background; its words are in out.txt."""
        with (self.folder / "out.txt").open("w") as out:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=caffe_stock.environment(**variables),
                stdout=out,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    def said(self) -> str:
        return (self.folder / "out.txt").read_text()

    def _run(self, command: list[str], environment: dict[str, str]) -> Ran:
        ran = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
        )
        return Ran(ran.returncode, ran.stdout)
