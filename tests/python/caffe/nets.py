"""Small nets and data for tests of tensorlightning.caffe."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent.parent
CAFFE = ROOT / ".caffe"
BATCH, CHANNELS, HEIGHT, WIDTH, CLASSES = 8, 2, 6, 5, 3
SOLVER = "base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' random_seed: 3"

_DATA = f"""
layer {{ name: "data" type: "MemoryData" top: "data" top: "label"
  memory_data_param {{
    batch_size: {BATCH} channels: {CHANNELS} height: {HEIGHT} width: {WIDTH} }} }}
"""
END = """
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "scores" bottom: "label" top: "accuracy"
  include { phase: TEST } }
"""
DENSE_LAYERS = f"""
layer {{ name: "hidden" type: "InnerProduct" bottom: "data" top: "hidden"
  inner_product_param {{ num_output: 16 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu" type: "ReLU" bottom: "hidden" top: "hidden" }}
layer {{ name: "scores" type: "InnerProduct" bottom: "hidden" top: "scores"
  inner_product_param {{ num_output: {CLASSES} weight_filler {{ type: "xavier" }} }} }}
"""
CONVOLUTION = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
"""
RECTIFIED = 'layer { name: "rectified" type: "ReLU" bottom: "conv" top: "conv" }'
DENSE = _DATA + DENSE_LAYERS + END
CONVOLUTIONAL = (
    _DATA + CONVOLUTION + RECTIFIED + DENSE_LAYERS.replace('bottom: "data"', 'bottom: "conv"') + END
)
POOLING = """
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { kernel_size: 2 } }
"""
POOLED = (
    _DATA + CONVOLUTION + POOLING + DENSE_LAYERS.replace('bottom: "data"', 'bottom: "pool"') + END
)


def examples(count: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Images whose class is where they are bright."""
    random = np.random.default_rng(7)
    labels = random.integers(0, CLASSES, count)
    images = random.normal(size=(count, CHANNELS, HEIGHT, WIDTH)).astype(np.float32) * 0.5
    images[np.arange(count), :, labels] += 2
    return images, labels


def run_python(program: str, *arguments: str, **environment: str):
    """In a process of its own, where `nets` is this module."""
    folders = os.pathsep.join(str(ROOT / folder) for folder in ("python", "tests"))
    return subprocess.run(
        [sys.executable, "-c", f"from python.caffe import nets\n{program}", *arguments],
        env=os.environ | {"PYTHONPATH": folders, "TF_CPP_MIN_LOG_LEVEL": "2"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        # Ctrl-C is its own, also where the tests run in the background of a shell.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
