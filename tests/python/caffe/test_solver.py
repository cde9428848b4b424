"""A solver in this process: trains, shares its memory, and leaves the process alive."""

import gc

import numpy as np
import pytest
from python.caffe import nets
from tensorlightning.caffe import CaffeError, Solver, read_caffemodel

pytestmark = pytest.mark.usefixtures("driver")


@pytest.fixture
def solver(driver):
    with Solver(nets.SOLVER, nets.DENSE) as solver:
        yield solver


def test_learns_what_it_is_fed(solver):
    images, labels = nets.examples()
    solver.feed(images, labels)
    first, later = solver.step(2), [solver.step(10) for _ in range(5)][-1]
    assert later < first / 4
    assert solver.iteration == 52
    assert solver.test(images, labels)["accuracy"] > 0.95


def test_predicts_any_number_of_examples(solver):
    images, labels = nets.examples()
    solver.feed(images, labels)
    solver.step(50)
    scores = solver.predict(images[:13], "scores")
    assert scores.shape == (13, nets.CLASSES)
    assert np.mean(np.argmax(scores, axis=1) == labels[:13]) > 0.9
    assert np.array_equal(scores[3:5], solver.predict(images[3:5], "scores"))


def test_the_same_seed_gives_the_same_weights():
    def train():
        with Solver(nets.SOLVER, nets.DENSE) as solver:
            solver.feed(*nets.examples())
            solver.step(5)
            return solver.parameters["hidden"][0].copy()

    assert np.array_equal(train(), train())


def test_parameters_are_the_nets_own_memory(solver):
    images, labels = nets.examples()
    weights, bias = solver.parameters["scores"]
    assert weights.shape == (nets.CLASSES, 16) and weights.dtype == np.float32
    weights[...] = 0
    bias[...] = [1, 2, 3]
    assert np.array_equal(solver.predict(images[:1], "scores"), [[1, 2, 3]])
    solver.feed(images, labels)
    solver.step(1)
    assert not np.array_equal(bias, [1, 2, 3])


def test_parameters_outlive_the_solver(driver):
    solver = Solver(nets.SOLVER, nets.DENSE)
    weights = solver.parameters["hidden"][0]
    before = weights.copy()
    solver.close()
    del solver
    gc.collect()
    assert np.array_equal(weights, before)
    weights += 1


def test_a_snapshot_has_what_the_net_has(solver, tmp_path):
    solver.feed(*nets.examples())
    solver.step(3)
    solver.snapshot(tmp_path / "a.caffemodel")
    found = read_caffemodel(tmp_path / "a.caffemodel")
    assert list(found) == ["hidden", "scores"]
    for name, arrays in solver.parameters.items():
        for array, other in zip(arrays, found[name], strict=True):
            assert np.array_equal(array, other)
    with pytest.raises(CaffeError, match=r"none/a.caffemodel: can't be written"):
        solver.snapshot(tmp_path / "none/a.caffemodel")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("base_lr: 0.1 lr_policy: 'fixed' bas_lr: 1", r'solver:1:39: .*no field named "bas_lr"'),
        ("base_lr: 0.1 lr_policy: 'none'", "Unknown learning rate policy: none"),
        ("base_lr: 0.1\ntype: 'Sgd'", "Unknown solver type: Sgd"),
        ("base_lr: 0.1\ntensorlightning_param { perod: 1 }", "solver:2: .*'perod'"),
        ("base_lr: 0.1 type: 'X' tensorlightning_param { }", "can't exchange"),
        ("base_lr: {", "solver:1:"),
        ("base_lr: 0.1 \0", "zero byte"),
    ],
)
def test_a_wrong_solver_is_an_exception(text, why):
    with pytest.raises(CaffeError, match=why):
        Solver(text, nets.DENSE)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('bottom: "scores"', 'bottom: "nothing"', "Unknown bottom blob 'nothing'"),
        ('"InnerProduct"', '"InnerProdukt"', "Unknown layer type: InnerProdukt"),
        ("num_output: 16", "num_output: -1", "Expected integer, got: -"),
        ("num_output: 3", "num_output: 0", "Check failed"),
        ("batch_size: 8", "batch_size: 0", "Check failed.*positive"),
        ("num_output: 16", "outputs: 16", r'net:\d+:\d+: .*no field named "outputs"'),
        ('"xavier"', '"xaver"', "Unknown filler name: xaver"),
        ('type: "MemoryData"', 'type: "Input"', "'data' is an Input.*MemoryData"),
    ],
)
def test_a_wrong_net_is_an_exception(old, new, why):
    assert old in nets.DENSE
    with pytest.raises(CaffeError, match=why):
        Solver(nets.SOLVER, nets.DENSE.replace(old, new))


def test_a_net_that_can_only_train_is_an_exception_when_tested(driver):
    net = nets.DENSE.replace('top: "label"', 'top: "label" include { phase: TRAIN }', 1)
    with Solver(nets.SOLVER, net) as solver:
        with pytest.raises(CaffeError, match="Unknown bottom blob 'data'"):
            solver.test(*nets.examples())
        solver.feed(*nets.examples())
        solver.step(1)


def test_wrong_food_is_refused_and_the_former_stays(solver):
    images, labels = nets.examples()
    with pytest.raises(CaffeError, match="'data' has no data yet"):
        solver.step(1)
    solver.feed(images, labels)
    with pytest.raises(ValueError, match=r"shape \(6, 5, 2\): the net takes \(2, 6, 5\)"):
        solver.feed(images.transpose(0, 2, 3, 1), labels)
    with pytest.raises(ValueError, match="63 labels for 64 examples"):
        solver.feed(images, labels[1:])
    with pytest.raises(CaffeError, match=r"63 examples.* multiple of its batch of 8"):
        solver.feed(images[1:], labels[1:])
    with pytest.raises(CaffeError, match="0 examples"):
        solver.feed(images[:0], labels[:0])
    with pytest.raises(CaffeError, match=r"label 0 is -1.* classes 0 to 2"):
        solver.feed(images, np.full(64, -1))
    with pytest.raises(CaffeError, match=r"label 5 is 3.* classes 0 to 2"):
        solver.feed(images, np.where(np.arange(64) == 5, 3, 0))
    with pytest.raises(ValueError, match=r"'other' was asked for, .*: data"):
        solver.feed(images, labels, layer="other")
    broken = images.copy()
    broken[9, 0, 0, 0] = np.nan
    with pytest.raises(CaffeError, match=r"example 9 .* no number"):
        solver.feed(broken, labels)
    del broken
    gc.collect()
    assert solver.step(50) < 1


def test_a_loss_that_is_no_number_is_an_exception_before_the_update(driver):
    with Solver(nets.SOLVER, nets.DENSE) as solver:
        solver.feed(*nets.examples())
        solver.parameters["scores"][1][0] = np.nan
        before = [array.copy() for array in solver.parameters["hidden"]]
        with pytest.raises(CaffeError, match="the loss is no number in iteration 0"):
            solver.step(3)
        for array, other in zip(solver.parameters["hidden"], before, strict=True):
            assert np.array_equal(array, other)
        solver.parameters["scores"][1][0] = 0
        assert np.isfinite(solver.step(1))


def test_every_part_of_an_iteration_is_looked_at_before_the_update(driver):
    """iter_size: the loss of the last part says nothing about the first."""
    images, labels = nets.examples(2 * nets.BATCH)
    images[: nets.BATCH] = 3e38
    with Solver(nets.SOLVER + " iter_size: 2", nets.DENSE) as solver:
        solver.feed(images, labels)
        with pytest.raises(CaffeError, match="the loss is no number in iteration 0"):
            solver.step(1)
        assert all(np.isfinite(array).all() for array in solver.parameters["hidden"])


def test_the_iteration_is_known_after_an_exception(solver):
    images, labels = nets.examples()
    solver.feed(images, labels)
    solver.step(3)
    solver.parameters["scores"][1][0] = np.nan
    with pytest.raises(CaffeError, match="in iteration 3"):
        solver.step(3)
    assert solver.iteration == 3


def test_a_label_that_one_layer_ignores_may_be_wrong_for_another(driver):
    """Caffe's Accuracy would read far outside of its blob."""
    ignoring = nets.DENSE.replace(
        'type: "SoftmaxWithLoss"', 'type: "SoftmaxWithLoss" loss_param { ignore_label: 255 }'
    )
    images, labels = nets.examples()
    labels[3] = 255
    with Solver(nets.SOLVER, ignoring) as solver:
        solver.feed(images, labels)
        solver.step(1)
        with pytest.raises(CaffeError, match=r"label 3 is 255.* classes 0 to 2"):
            solver.test(images, labels)


def test_a_closed_solver_says_so(driver):
    solver = Solver(nets.SOLVER, nets.DENSE)
    solver.close()
    solver.close()
    for call in (solver.step, solver.finish, lambda: solver.feed(*nets.examples())):
        with pytest.raises(CaffeError, match="the solver is closed"):
            call()


def test_weights_are_loaded_by_name(solver):
    wanted = {"scores": [np.ones((nets.CLASSES, 16)), np.zeros(nets.CLASSES)], "other": [[1]]}
    assert solver.load(wanted) == ["scores"]
    assert np.all(solver.parameters["scores"][0] == 1)
    old = {"scores": [np.full((1, 1, nets.CLASSES, 16), 2.0), np.ones((1, 1, 1, nets.CLASSES))]}
    assert solver.load(old) == ["scores"]
    assert np.all(solver.parameters["scores"][0] == 2)
    with pytest.raises(ValueError, match="layer 'scores' has"):
        solver.load({"scores": [np.ones((nets.CLASSES, 16))]})
    with pytest.raises(ValueError, match="layer 'scores' has"):
        solver.load({"scores": [np.ones((16, nets.CLASSES)), np.zeros(nets.CLASSES)]})


def test_a_net_may_have_several_inputs(driver):
    """Labels come from a second layer, whose data nobody uses."""
    second = nets.DENSE.split("layer {", 2)[1].replace('"data"', '"unused"')
    first = nets.DENSE.replace('top: "label"', 'top: "ignored"', 1)
    images, labels = nets.examples()
    with Solver(nets.SOLVER, "layer {" + second + first) as solver:
        with pytest.raises(ValueError, match="in this phase the net has: unused, data"):
            solver.feed(images, labels)
        solver.feed(images, layer="data")
        with pytest.raises(CaffeError, match="'unused' has no data yet"):
            solver.step(1)
        solver.feed(images, labels, layer="unused")
        with pytest.raises(CaffeError, match="classes 0 to 2"):
            solver.feed(images, labels + 1, layer="unused")
        assert solver.step(50) < 1
        solver.feed(images, labels, layer="unused", test=True)
        assert solver.test(images, labels, layer="data")["accuracy"] > 0.9


def test_goes_on_with_the_learning_rate_of_an_iteration():
    """Training that begins with the eighth iteration has the rate that the eighth had."""
    text = "base_lr: 1 lr_policy: 'multistep' gamma: 0.5 stepvalue: 2 stepvalue: 5 random_seed: 3"

    def bias_after_a_step(rate, iteration):
        with Solver(text.replace("base_lr: 1", f"base_lr: {rate}"), nets.DENSE) as solver:
            solver.join(iteration)
            solver.feed(*nets.examples())
            solver.step(1)
            assert solver.iteration == iteration + 1
            return solver.parameters["scores"][1].copy()

    assert np.allclose(bias_after_a_step(1, 7), bias_after_a_step(0.25, 0))
    assert not np.allclose(bias_after_a_step(1, 7), bias_after_a_step(1, 0))


def test_who_has_begun_can_not_join_any_more(solver):
    assert solver.statistics() == {}
    solver.feed(*nets.examples())
    solver.step(1)
    with pytest.raises(CaffeError, match="has begun"):
        solver.join()
