"""Without a launcher: one worker with an aggregator of its own, and the same as plain training."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorlightning as tl

from . import models

pytestmark = pytest.mark.usefixtures("ops")

FIT = {"batch_size": 16, "epochs": 2, "verbose": 0}


def train(model: keras.Model, *callbacks, **settings) -> keras.Model:
    keras.utils.set_random_seed(7)
    model.fit(*models.data(), **(FIT | settings), callbacks=list(callbacks))
    return model


def assert_same(model: keras.Model, other: keras.Model) -> None:
    assert len(model.weights) == len(other.weights)
    for mine, plain in zip(model.weights, other.weights, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-5, err_msg=plain.path)


@pytest.mark.parametrize(
    ("build", "optimizer"),
    [
        (models.dense, lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)),
        (models.normalised, lambda: keras.optimizers.Adam(0.01, clipnorm=0.5)),
        (models.subclassed, lambda: keras.optimizers.RMSprop(0.01)),
        (models.recurrent, lambda: keras.optimizers.AdamW(0.01, weight_decay=0.01)),
    ],
)
@pytest.mark.parametrize("policy", ["elastic", "local"])
def test_training_is_as_if_there_were_no_callback(build, optimizer, policy):
    together = train(models.compiled(build(), optimizer()), tl.Elastic(policy=policy, period=3))
    assert_same(together, train(models.compiled(build(), optimizer())))
    statistics = tl.statistics()
    assert statistics["policy"] == policy
    assert (statistics["steps"], statistics["exchanges"] >= 5) == (32, True)


class Around(keras.Model):
    """Has a step of its own, and is never called itself: Keras never calls it built."""

    def __init__(self, inner: keras.Model):
        super().__init__()
        self.inner = inner

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self.inner(x, training=True))
        weights = self.inner.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def test_a_model_with_a_step_of_its_own_takes_part():
    model = train(models.compiled(Around(models.dense()), metrics=None), tl.Elastic(period=2))
    assert (tl.statistics()["steps"], tl.statistics()["exchanges"] > 1) == (32, True)
    assert_same(model, train(models.compiled(Around(models.dense()), metrics=None)))


def test_gradient_policies_leave_a_worker_without_others_as_it_is():
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    assert tl.DistributedOptimizer(optimizer) is optimizer
    hooked = train(models.compiled(models.dense(), optimizer), tl.Elastic(policy="gradient"))
    assert_same(hooked, train(models.compiled(models.dense())))


def test_several_steps_at_once_count_as_several():
    model = models.compiled(models.dense(), steps_per_execution=4)
    train(model, tl.Elastic(period=3))
    assert tl.statistics()["steps"] == 32
    assert_same(model, train(models.compiled(models.dense(), steps_per_execution=4)))


def test_weights_of_several_types_are_kept():
    keras.utils.set_random_seed(1)
    types = ("float32", "float16", "bfloat16", "float64")
    layers = [keras.layers.Dense(8, dtype=dtype) for dtype in types]
    model = keras.Sequential([keras.Input((models.FEATURES,)), *layers, keras.layers.Dense(4)])
    before = [weight.dtype for weight in model.weights]
    train(models.compiled(model), tl.Elastic(period=1), epochs=1)
    assert [weight.dtype for weight in model.weights] == before
    assert all(np.all(np.isfinite(np.asarray(weight, np.float32))) for weight in model.weights)


def test_mixed_precision_trains():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = train(models.compiled(models.dense()), tl.Elastic(period=1), epochs=6)
    finally:
        keras.config.set_dtype_policy("float32")
    assert models.accuracy(model) > 0.7


def test_xla_stays_on_where_weights_are_averaged(capfd):
    model = models.compiled(models.dense(), jit_compile=True)
    train(model, tl.Elastic(period=1), epochs=1)
    assert model.jit_compile is True
    assert "XLA" not in capfd.readouterr().err


def test_a_second_fit_goes_on_with_other_data_and_the_same_callback():
    elastic = tl.Elastic(period=2)
    model, plain = models.compiled(models.dense()), models.compiled(models.dense())
    for samples in (64, 128, 96):
        x, y = models.data(samples)
        model.fit(x, y, **FIT, shuffle=False, callbacks=[elastic])
        plain.fit(x, y, **FIT, shuffle=False)
    assert_same(model, plain)


def test_fits_of_different_models_do_not_know_each_other():
    first = train(models.compiled(models.dense(1)), tl.Elastic())
    kept = models.digest(first)
    assert_same(
        train(models.compiled(models.recurrent()), tl.Elastic()),
        train(models.compiled(models.recurrent())),
    )
    train(models.compiled(models.dense(2)), tl.Elastic())
    assert models.digest(first) == kept


class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 5:
            raise RuntimeError("the disk is full")


@pytest.mark.parametrize("policy", ["elastic", "gradient"])
def test_an_exception_in_the_middle_of_fit_is_forgotten_by_the_next(policy):
    model = models.compiled(models.dense())
    with pytest.raises(RuntimeError, match="the disk is full"):
        train(model, tl.Elastic(policy=policy, period=1), Fails())
    train(model, tl.Elastic(policy=policy, period=1), epochs=6)
    assert models.accuracy(model) > 0.8
    assert type(model.optimizer) is keras.optimizers.SGD


def test_a_model_from_a_file_goes_on(tmp_path):
    path = tmp_path / "folder" / "model.keras"
    train(models.compiled(models.normalised()), tl.Elastic(checkpoint=path))
    loaded = []
    for _ in range(2):
        keras.utils.set_random_seed(3)  # For dropout, whose seeds are in no file.
        loaded.append(keras.models.load_model(path))
    assert_same(train(loaded[0], tl.Elastic()), train(loaded[1]))
    assert [file.name for file in path.parent.iterdir()] == ["model.keras"]


def test_checkpoint_takes_what_keras_takes(tmp_path):
    checkpoint = tl.Checkpoint(
        tmp_path / "{epoch}.weights.h5", monitor="loss", save_best_only=True, save_weights_only=True
    )
    model = train(models.compiled(models.dense()), tl.Elastic(), checkpoint)
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["1.weights.h5", "2.weights.h5"]
    other = models.dense(9)
    other.load_weights(tmp_path / "2.weights.h5")
    assert_same(other, model)


def test_the_centre_of_a_worker_alone_is_its_model():
    class Looks(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            before = models.digest(self.model)
            with elastic.centre():
                assert models.digest(self.model) == before
            assert models.digest(self.model) == before

    elastic = tl.Elastic(period=1)
    train(models.compiled(models.dense()), elastic, Looks())


def test_an_exchanger_works_in_and_out_of_a_graph():
    results = []
    for inside in (False, True):
        variable = tf.Variable([1.0, 2.0])
        counter = tf.Variable(3)
        with tl.exchanger([variable, counter], period=2) as exchange:

            @tf.function
            def step(variable=variable, exchange=exchange, inside=inside):
                variable.assign_add([1.0, -1.0])
                return exchange() if inside else tf.constant(False)

            for _ in range(10):
                step()
                if not inside:
                    exchange()
            assert exchange.statistics()["steps"] == 10
            exchange.pull()
        results.append(variable.numpy().tolist())
        assert exchange.statistics()["exchanges"] >= 1
        with pytest.raises(RuntimeError, match="has finished"):
            exchange()
    assert results == [[11.0, -8.0]] * 2


def test_an_exchanger_without_variables_or_for_gradients_says_so():
    with pytest.raises(ValueError, match="no variables"):
        tl.exchanger([])
    with pytest.raises(ValueError, match="none has floats"):
        tl.exchanger([tf.Variable(3)])
    with pytest.raises(ValueError, match=r"tl\.DistributedOptimizer"):
        tl.exchanger([tf.Variable(3.0)], policy="gradient")
    with pytest.raises(TypeError, match="no variable"):
        tl.exchanger([3.0])


def test_a_strategy_of_tensorflow_is_refused():
    model = models.compiled(models.dense())
    refused = pytest.raises(RuntimeError, match=r"takes the place of tf\.distribute")
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope(), refused:
        train(model, tl.Elastic())


def test_keras_2_works_where_weights_are_averaged():
    tf_keras = pytest.importorskip("tf_keras")
    results = []
    for callbacks in ([tl.Elastic(period=2)], []):
        tf_keras.utils.set_random_seed(1)
        layers = [tf_keras.layers.Dense(8), tf_keras.layers.BatchNormalization()]
        model = tf_keras.Sequential([*layers, tf_keras.layers.Dense(models.CLASSES)])
        loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9), loss)
        model.fit(*models.data(), **FIT, shuffle=False, callbacks=callbacks)
        results.append(model.get_weights())
    assert tl.statistics()["steps"] == 32
    for mine, plain in zip(*results, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-5)


def test_a_final_that_is_none_is_refused():
    with pytest.raises(ValueError, match="final='best'"):
        tl.Elastic(final="best")
