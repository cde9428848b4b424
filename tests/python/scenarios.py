"""What worker processes of tests do; see nursery.py. Each returns what JSON can hold."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keras
import models
import numpy as np
import tensorflow as tf
import tensorlightning as tl


def _account(model: keras.Model) -> dict[str, Any]:
    return {
        "rank": tl.rank(),
        "digest": models.digest(model),
        "accuracy": models.accuracy(model),
        "statistics": tl.statistics(),
    }


def _fit(model: keras.Model, *callbacks: Any, **settings: Any) -> None:
    x, y = tl.shard(*models.data())
    chosen = {"batch_size": 8, "epochs": 4, "verbose": 0} | settings
    model.fit(x, y, callbacks=list(callbacks), **chosen)


def fits(policies: list[str], build: str = "dense", **options: Any) -> dict[str, Any]:
    """One fit after another; every worker begins with weights of its own."""
    results = {}
    for policy in policies:
        model = models.compiled(getattr(models, build)(seed=10 + tl.rank()))
        _fit(model, tl.Elastic(policy=policy, **options))
        results[policy] = _account(model)
    return results


def exact_gradients(momentum: float, optimizer_too: bool) -> list[Any]:
    """Gradients that are not pruned: the same as one worker with all of the batch."""
    optimizer = keras.optimizers.SGD(0.05, momentum=momentum, weight_decay=0.01)
    everything = {"density": 1.0, "reply_density": 1.0, "bits": 32}
    callbacks = []
    if optimizer_too:
        tl.DistributedOptimizer(optimizer, **everything)
    else:
        callbacks = [tl.Elastic(policy="gradient", **everything)]
    model = models.compiled(models.dense(seed=10 + tl.rank()), optimizer, jit_compile=False)
    _fit(model, *callbacks, shuffle=False, epochs=2)
    return [weight.numpy().tolist() for weight in model.weights]


def many_optimizers() -> dict[str, Any]:
    """Optimizers with something special to them, hooked; saved and loaded while they are."""
    results = {}
    makers = {
        "clipped": lambda: keras.optimizers.Adam(0.01, clipnorm=0.5),
        "accumulating": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
        "averaged": lambda: keras.optimizers.RMSprop(0.01, use_ema=True),
        "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
        "nesterov": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    }
    for name, make in makers.items():
        model = models.compiled(
            models.normalised(seed=10 + tl.rank()),
            make(),
            jit_compile=name == "clipped",
            run_eagerly=name == "averaged",
        )
        path = f"{os.environ['SCENARIO_FOLDER']}/{name}-{tl.rank()}.keras"
        saves = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: model.save(path))  # noqa: B023
        _fit(model, tl.Elastic(policy="gradient", density=1.0), saves, epochs=2)
        loaded = keras.models.load_model(path)
        results[name] = {
            "digest": models.digest(model),
            "plain": type(model.optimizer) is type(loaded.optimizer) is type(make()),
            "momentum": getattr(loaded.optimizer, "momentum", None),
            "xla": bool(model.jit_compile),
        }
    return results


def loops() -> dict[str, Any]:
    """Without fit(): an exchanger in a graph; optimizers hooked and used by hand."""
    x, y = tl.shard(*models.data())
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8).repeat(4)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    results = {}
    for kind in ("exchanger", "gradient", "gradient eagerly", "local"):
        model = models.dense(seed=10 + tl.rank())
        optimizer = keras.optimizers.SGD(0.1)
        exchange = None
        if kind == "exchanger":
            exchange = tl.exchanger(model.weights, period=2)
        else:
            tl.DistributedOptimizer(optimizer, policy=kind.split()[0], period=2)

        def step(x, y, model=model, optimizer=optimizer, exchange=exchange):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss if exchange is None else (loss, exchange())

        run = step if kind == "gradient eagerly" else tf.function(step)
        for batch in batches:
            run(*batch)
        if exchange is not None:
            exchange.finish()
        results[kind] = _account(model)
    return results


def saves_the_centre(path: str) -> dict[str, Any]:
    """With a checkpoint; every worker also looks at the centre in the middle."""
    centres = []

    class Looks(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            with elastic.centre():
                pass  # What has come back meanwhile is in the model now.
            own = models.digest(self.model)
            with elastic.centre():
                centres.append(models.digest(self.model) != own)
            assert models.digest(self.model) == own

    elastic = tl.Elastic(period=2, checkpoint=path)
    model = models.compiled(models.normalised(seed=10 + tl.rank()))
    _fit(model, elastic, Looks())
    return _account(model) | {"differed": any(centres)}


def keeps_its_own() -> dict[str, Any]:
    model = models.compiled(models.dense(seed=10 + tl.rank()))
    _fit(model, tl.Elastic(period=2, final="own"))
    return _account(model)


class _Says(keras.callbacks.Callback):
    """Lets the test know how far it is; goes on until it is told to stop."""

    def __init__(self, stop: str | None = None):
        super().__init__()
        self._stop, self._steps = stop, 0

    def on_train_batch_end(self, batch, logs=None):
        self._steps += 1
        if self._steps == 10:
            print("10 steps", file=sys.stderr, flush=True)
        if self._stop and Path(self._stop).exists():
            self.model.stop_training = True


def endless(
    policy: str = "elastic", stop: str | None = None, patience: float = 20
) -> dict[str, Any]:
    """Trains until `stop` exists, or somebody puts an end to it."""
    model = models.compiled(models.dense(seed=10 + tl.rank()))
    elastic = tl.Elastic(policy=policy, period=1, patience=patience)
    _fit(model, elastic, _Says(stop), epochs=1_000_000)
    return _account(model)


def drops_control_c() -> dict[str, Any]:
    """A Ctrl-C in the second step comes to nothing, as in a __del__ of TensorFlow's."""

    class Drops(keras.callbacks.Callback):
        steps = 0

        def on_train_batch_begin(self, batch, logs=None):
            self.steps += 1
            if self.steps == 2:
                with contextlib.suppress(KeyboardInterrupt):
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(60)

    drops = Drops()
    model = models.compiled(models.dense())
    ended = False
    try:
        _fit(model, tl.Elastic(), drops)
    except KeyboardInterrupt:
        ended = True
    interrupted_at = drops.steps
    _fit(model, tl.Elastic())  # The next one is not ended by what came before.
    return {"ended": ended, "step": interrupted_at}


def joins(**options: Any) -> dict[str, Any]:
    """Whether it can, or why not."""
    try:
        exchange = tl.exchanger([tf.Variable(tf.ones([3]))], **options)
    except tf.errors.OpError as error:
        return {"error": type(error).__name__, "message": error.message}
    exchange.leave()
    return {"error": None}


def gets_a_nan(policy: str) -> dict[str, Any]:
    """Rank 1's model becomes NaN in the middle: it is told, and nobody else gets it."""

    class Breaks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if tl.rank() == 1 and batch == 5:
                # After the last activation: relu may turn a NaN into 0, depending on the processor.
                weight = self.model.weights[-1]
                weight.assign(weight * np.nan)

    model = models.compiled(models.dense())
    try:
        _fit(model, tl.Elastic(policy=policy, period=1, patience=6), Breaks())
    except tf.errors.OpError as error:
        return {"error": type(error).__name__, "message": error.message}
    finite = all(np.all(np.isfinite(weight.numpy())) for weight in model.weights)
    return {"error": None, "finite": bool(finite)}


def exits_in_the_middle(how: str) -> None:
    """Ends with an exchange under way, in one of the ways programs end."""
    variable = tf.Variable(tf.random.normal([300_000]))
    exchange = tl.exchanger([variable], period=1)

    @tf.function
    def step():
        variable.assign_add(tf.random.normal([300_000]))
        return exchange()

    for _ in range(3):
        step()
    if how == "exit":
        sys.exit(7)
    if how == "exception":
        raise RuntimeError("on purpose")
