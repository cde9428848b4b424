"""What a solver does to the process it lives in, and to others of its job."""

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from python.caffe import nets
from tensorlightning import _files
from tensorlightning.caffe import CaffeError, Solver, _library

pytestmark = pytest.mark.usefixtures("driver")

TENSORFLOW = """
import numpy as np, tensorflow as tf
def dense():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 4)), np.ones(8), verbose=0)
    tf.io.parse_tensor(tf.io.serialize_tensor(tf.ones(3)), tf.float32)
"""
CAFFE = """
from tensorlightning.caffe import CaffeError, Solver
def train():
    with Solver(nets.SOLVER, nets.CONVOLUTIONAL) as solver:
        solver.feed(*nets.examples())
        first = solver.step(2)
        assert solver.step(50) < first
    try:
        Solver("base_lr: nothing", nets.DENSE)
    except CaffeError:
        return
    raise AssertionError("it was accepted")
"""


@pytest.mark.parametrize(
    "program",
    [
        TENSORFLOW + CAFFE + "dense(); train(); dense(); train()",
        CAFFE + "train()" + TENSORFLOW + "dense(); train(); dense()",
    ],
    ids=["tensorflow_first", "caffe_first"],
)
def test_lives_in_one_process_with_tensorflow(program):
    ended = nets.run_python(program + "\nprint('both work')")
    assert (ended.returncode, ended.stdout) == (0, "both work\n"), ended.stderr


def test_importing_it_imports_no_tensorflow():
    ended = nets.run_python(CAFFE + "import sys; print('tensorflow' in sys.modules)")
    assert ended.stdout == "False\n", ended.stderr


def test_is_silent():
    ended = nets.run_python(CAFFE + "train()")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_ctrl_c_ends_a_step():
    program = """
import os, signal, threading, time
from tensorlightning.caffe import Solver
solver = Solver(nets.SOLVER, nets.DENSE)
solver.feed(*nets.examples())
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    solver.step(10**9)
except KeyboardInterrupt:
    done = solver.iteration
    solver.step(2)
    print("obeyed", solver.iteration - done)
"""
    ended = nets.run_python(program)
    assert ended.stdout == "obeyed 2\n", ended.stderr


def test_ctrl_c_may_be_pressed_twice():
    program = """
import os, signal, threading
from tensorlightning.caffe import Solver
solver = Solver(nets.SOLVER, nets.DENSE)
images, labels = nets.examples()
solver.feed(images, labels)
# Each iteration takes a while: the second comes before the first was obeyed.
def press():
    for _ in range(5):
        os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.5, press).start()
try:
    solver.step(10**9)
except KeyboardInterrupt:
    done = solver.iteration
    solver.step(5)
    print("obeyed", solver.iteration - done)
"""
    ended = nets.run_python(program)
    assert ended.stdout == "obeyed 5\n", ended.stderr


def test_a_loss_that_is_no_number_leaves_the_memory_whole():
    """A MAX pooling over NaN would write in front of its blob."""
    program = """
from tensorlightning.caffe import CaffeError, Solver
images, labels = nets.examples()
for _ in range(20):
    with Solver(nets.SOLVER, nets.POOLED, check=False) as solver:
        solver.feed(images, labels)
        solver.parameters["conv"][0][...] = float("nan")
        try:
            solver.step(1)
        except CaffeError as error:
            print(str(error)[:21])
"""
    ended = nets.run_python(program, MALLOC_CHECK_="3")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "the loss is no number\n" * 20


def test_an_aggregator_out_of_reach_is_an_exception(free_port):
    where = f"aggregator: '127.0.0.1:{free_port}'"
    block = f"tensorlightning_param {{ {where} patience: 1 size: 2 rank: 0 }}"
    with Solver(f"{nets.SOLVER}\n{block}", nets.DENSE) as solver:
        solver.feed(*nets.examples())
        with pytest.raises(CaffeError, match=str(free_port)):
            solver.step(1)
    # Two workers' settings were of that solver alone.
    with Solver(nets.SOLVER, nets.DENSE) as solver:
        solver.feed(*nets.examples())
        solver.step(1)


TOGETHER = """
import sys, time
import numpy as np
from tensorlightning.caffe import Solver
rank, file = int(sys.argv[1]), sys.argv[2]
images, labels = nets.examples()
block = f"tensorlightning_param {{ period: 2 size: 2 rank: {rank} density: 0.5 }}"
with Solver(f"{nets.SOLVER} {block}", nets.DENSE) as solver:
    solver.feed(images[rank * 32 :][:32], labels[rank * 32 :][:32])
    for _ in range(60):
        solver.step(1)
        time.sleep(0.03)  # A step takes too little for two workers to meet.
    solver.finish()
    np.save(file, np.concatenate([a.ravel() for a in solver.parameters["hidden"]]))
    print("accuracy", solver.test(images, labels)["accuracy"])
"""


def test_a_block_makes_it_exchange_with_others(aggregator, tmp_path):
    """Each of two workers sees examples of its own; what they end with is nearly the same."""
    files = [tmp_path / f"{rank}.npy" for rank in range(2)]
    settings = {"TL_AGGREGATOR": aggregator.endpoint, "GLOG_minloglevel": "0"}
    with ThreadPoolExecutor(2) as threads:
        workers = [
            threads.submit(nets.run_python, TOGETHER, str(rank), str(file), **settings)
            for rank, file in enumerate(files)
        ]
        ended = [worker.result() for worker in workers]
    for worker in ended:
        assert worker.returncode == 0, worker.stderr
        assert float(re.search(r"accuracy ([\d.]+)", worker.stdout)[1]) > 0.9
        assert "of 2 exchanges" in worker.stderr
    first, second = (np.load(file) for file in files)
    # Who leaves first has not seen the other's last exchange.
    assert np.max(np.abs(first - second)) < 0.2 * np.max(np.abs(first))


JOINING = """
import sys
import numpy as np
from tensorlightning.caffe import Solver
train, file = sys.argv[1] == "train", sys.argv[2]
rank = 0 if train else 1
block = f"tensorlightning_param {{ period: 1 density: 1 bits: 32 size: 2 rank: {rank} }}"
# The second one's own weights are others.
text = nets.SOLVER.replace("seed: 3", f"seed: {3 + rank}")
with Solver(f"{text} {block}", nets.DENSE) as solver:
    before = solver.parameters["hidden"][0].copy()
    assert solver.statistics() == {}
    solver.join()
    assert solver.statistics()["rank"] == rank
    if train:
        assert np.array_equal(solver.parameters["hidden"][0], before)
        solver.feed(*nets.examples())
        solver.step(20)
        solver.finish()
        assert solver.statistics()["exchanges"] > 0
        assert not np.array_equal(solver.parameters["hidden"][0], before)
    np.save(file, solver.parameters["hidden"][0])
assert solver.statistics()["bytes_received"] > 0
"""


def test_who_joins_has_the_centre_without_a_step(aggregator, tmp_path):
    arrays = []
    settings = {"TL_AGGREGATOR": aggregator.endpoint, "TL_ENDING": "apart"}
    for what in ("train", "look"):
        file = tmp_path / f"{what}.npy"
        ended = nets.run_python(JOINING, what, str(file), **settings)
        assert ended.returncode == 0, ended.stderr
        arrays.append(np.load(file))
    np.testing.assert_allclose(*arrays, atol=1e-6)


def test_a_last_exchange_that_fails_is_an_exception(aggregator):
    settings = f"aggregator: '{aggregator.endpoint}' patience: 2 ending: 'apart'"
    with Solver(f"{nets.SOLVER}\ntensorlightning_param {{ {settings} }}", nets.DENSE) as solver:
        solver.feed(*nets.examples())
        solver.step(1)
        aggregator.kill()
        with pytest.raises(CaffeError):
            solver.finish()


def test_a_driver_that_is_not_there_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("TL_CAFFE_DRIVER", str(tmp_path / "none.so"))
    with pytest.raises(ImportError, match=r"TL_CAFFE_DRIVER=.*none.so names no file"):
        _library.path()
    monkeypatch.delenv("TL_CAFFE_DRIVER")
    monkeypatch.setattr(_files, "PACKAGE", tmp_path)
    with pytest.raises(ImportError, match="make caffe"):
        _library.path()
