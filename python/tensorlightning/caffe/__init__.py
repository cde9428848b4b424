"""Caffe in this process, and its files.

    from tensorlightning.caffe import Solver

    with Solver(solver_text, net_text) as solver:
        solver.feed(images, labels)
        solver.step(100)
        solver.snapshot("model.caffemodel")

A ``tensorlightning_param { }`` block in the solver's text makes it train together with others, as
it does for the stock binary. ``read_caffemodel`` and ``write_caffemodel`` know the files without
Caffe; ``to_keras`` and ``from_keras`` exchange weights with a Keras model.

TensorFlow may be in the same process, imported before or after; nothing here imports it.
"""

from tensorlightning.caffe._library import CaffeError
from tensorlightning.caffe.keras_weights import from_keras, to_keras
from tensorlightning.caffe.models import read_caffemodel, write_caffemodel
from tensorlightning.caffe.solver import Solver

__all__ = [
    "CaffeError",
    "Solver",
    "from_keras",
    "read_caffemodel",
    "to_keras",
    "write_caffemodel",
]
