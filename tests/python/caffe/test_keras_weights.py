"""The same model in Caffe and in Keras gives the same scores."""

import keras
import numpy as np
import pytest
from python.caffe import nets
from tensorlightning.caffe import Solver, from_keras, to_keras

FLAT = (4, nets.HEIGHT - 2, nets.WIDTH - 2)


@pytest.fixture
def solver(driver):
    with Solver(nets.SOLVER, nets.CONVOLUTIONAL) as solver:
        yield solver


def model(name: str = "conv") -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((nets.HEIGHT, nets.WIDTH, nets.CHANNELS)),
            keras.layers.Conv2D(4, 3, activation="relu", name=name),
            keras.layers.Flatten(),
            keras.layers.Dense(16, activation="relu", name="hidden"),
            keras.layers.Dense(nets.CLASSES, name="scores"),
        ]
    )


def differ(solver: Solver, keras_model: keras.Model) -> float:
    images, _ = nets.examples()
    theirs = keras_model.predict(images.transpose(0, 2, 3, 1), verbose=0)
    return float(np.max(np.abs(solver.predict(images, "scores") - theirs)))


def test_caffes_weights_in_keras(solver):
    copy = model()
    solver.feed(*nets.examples())
    solver.step(20)
    assert differ(solver, copy) > 0.1
    copied = to_keras(solver.parameters, copy, flattened={"hidden": FLAT})
    assert copied == ["conv", "hidden", "scores"]
    assert differ(solver, copy) < 1e-4


def test_kerass_weights_in_caffe(solver):
    source = model("first")
    layers = {"conv": "first", "hidden": "hidden", "scores": "scores"}
    found = from_keras(source, solver.parameters, layers=layers, flattened={"hidden": FLAT})
    assert solver.load(found) == ["conv", "hidden", "scores"]
    assert differ(solver, source) < 1e-4


def caffe_weights():
    shapes = {"conv": [(4, 2, 3, 3), (4,)], "hidden": [(16, 48), (16,)], "scores": [(3, 16), (3,)]}
    return {name: [np.ones(s, np.float32) for s in each] for name, each in shapes.items()}


def test_there_and_back_is_the_same():
    source, target = model(), model()
    found = from_keras(source, caffe_weights(), flattened={"hidden": FLAT})
    to_keras(found, target, flattened={"hidden": FLAT})
    for one, other in zip(source.get_weights(), target.get_weights(), strict=True):
        assert np.array_equal(one, other)


def test_blobs_of_four_axes_are_dense_layers_of_old_files():
    old = caffe_weights()
    for name in ("hidden", "scores"):
        old[name] = [old[name][0][None, None], old[name][1][None, None, None]]
    source, target = model(), model()
    found = from_keras(source, old, flattened={"hidden": FLAT})
    assert found["hidden"][0].shape == (1, 1, 16, 48)
    to_keras(found, target, flattened={"hidden": FLAT})
    assert np.array_equal(source.get_weights()[2], target.get_weights()[2])


def test_a_flatten_must_be_told_of():
    with pytest.raises(ValueError, match=r"'hidden' comes after a flatten.*flattens \(4, 3, 4\)"):
        to_keras(caffe_weights(), model())
    with pytest.raises(ValueError, match=r"flattened\['hidden'\] is \(4, 4, 4\).* 48 inputs"):
        to_keras(caffe_weights(), model(), flattened={"hidden": (4, 4, 4)})
    with pytest.raises(ValueError, match="'hiden', which is none of the layers"):
        to_keras(caffe_weights(), model(), flattened={"hiden": FLAT})


def test_what_does_not_fit_changes_nothing():
    target = model()
    before = target.get_weights()
    wrong = caffe_weights()
    wrong["scores"][0] = np.ones((4, 16), np.float32)
    with pytest.raises(ValueError, match="layer 'scores' does not fit"):
        to_keras(wrong, target, flattened={"hidden": FLAT})
    with pytest.raises(ValueError, match="no layers have the same name"):
        to_keras({"ip": [np.ones((2, 2))]}, target)
    with pytest.raises(ValueError, match="has no layer 'second'"):
        to_keras(wrong, target, layers={"conv": "second"})
    for one, other in zip(before, target.get_weights(), strict=True):
        assert np.array_equal(one, other)
