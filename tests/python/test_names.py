"""Variables' names are the same in every worker, whatever it has made before."""

import keras
import tensorflow as tf
from tensorlightning import variables

from . import models


def names_of_a_model() -> list[str]:
    return variables.names(variables.floats(models.normalised().weights))


def test_names_do_not_depend_on_what_was_made_before():
    first = names_of_a_model()
    keras.layers.Dense(3).build((1, 3))
    assert names_of_a_model() == first


def test_names_differ_where_layers_are_called_alike():
    layers = [keras.layers.Dense(3, name="same") for _ in range(2)]
    made = [weight for layer in layers for weight in (layer.build((1, 3)), *layer.weights)[1:]]
    names = variables.names(made)
    assert len(set(names)) == len(names) == 4
    assert names[0] == "0:same/kernel"


def test_counters_seeds_and_doubles_are_left_out():
    twice = tf.Variable(1.0)
    given = [twice, tf.Variable(1), tf.Variable(True), twice, tf.Variable(tf.zeros([0, 3]))]
    assert variables.floats(given) == [twice]
    model = models.normalised()
    assert len(variables.floats(model.variables)) == len(model.weights)


def test_odd_names_become_harmless():
    (name,) = variables.names([tf.Variable(1.0, name="größe" + "x" * 2000)])
    assert len(name) < 1024 and name.isascii() and name.isprintable()
