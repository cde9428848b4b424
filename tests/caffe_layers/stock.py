"""A caffe train of the stock binary, with the plugin, as a process of a test."""

import re
import signal
import subprocess
import time

import caffe_stock
import numpy as np

SECONDS = 60
BASIC = {"TL_PATIENCE": "20"}
INPUTS, CLASSES = 16, 3

FED = """
layer {
  name: "data" type: "SocketData" top: "data" top: "label"
  data_param { source: "%s" batch_size: 20 }
  input_param { shape { dim: 4 dim: 4 } shape { } }
  transform_param { scale: 0.00390625 }
}
"""
REST = """
layer {
  name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } }
}
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
FIXED = 'lr_policy: "fixed"'
SOLVER = """
net: "net.prototxt" base_lr: 0.1 display: %d solver_mode: CPU random_seed: 1
snapshot_prefix: "out" max_iter: %d
"""


class Caffe:
    """A caffe train that runs, in a folder of its own."""

    def __init__(self, folder, net, *, iterations=100, display=20, solver=FIXED, **variables):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "net.prototxt").write_text(net)
        (folder / "solver.prototxt").write_text(SOLVER % (display, iterations) + solver)
        self.process = subprocess.Popen(
            [caffe_stock.program(), "train", "--solver=solver.prototxt"],
            cwd=folder,
            env=caffe_stock.environment(**BASIC | variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Also where the tests run in the background of a shell.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self._seen = ""

    def end(self) -> tuple[int, str]:
        """Its status, and what it has said."""
        try:
            log, _ = self.process.communicate(timeout=SECONDS)
        finally:
            self.process.kill()
        return self.process.returncode, self._seen + log

    def interrupted_when(self, text: str) -> bool:
        """Presses Ctrl-C once it has said so. Not if it never does."""
        for line in self.process.stdout:
            self._seen += line
            if text in line:
                time.sleep(0.5)
                self.process.send_signal(signal.SIGINT)
                return True
        return False

    def losses(self, log: str) -> list[float]:
        return [float(loss) for loss in re.findall(r"Iteration \d+ .*loss = (\S+)", log)]

    def weights(self) -> np.ndarray:
        """The floats of the one snapshot, wherever they are in it."""
        (snapshot,) = self.folder.glob("*.caffemodel")
        # BlobProto.data is packed: field 5, wire type 2, then the length of 3 x 16 floats.
        content = snapshot.read_bytes()
        marker = b"\x2a\xc0\x01"
        begin = content.index(marker) + len(marker)
        return np.frombuffer(content[begin : begin + CLASSES * INPUTS * 4], "<f4")


def ended(start, net, **options) -> str:
    """What a Caffe says that is to end with a sentence, and with 1."""
    status, log = start(net, **options).end()
    assert status == 1, log
    assert "Check failed" not in log
    (line,) = [line for line in log.splitlines() if line.startswith("tensorlightning: layer")]
    return line
