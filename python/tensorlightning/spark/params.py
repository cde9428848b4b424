"""What ElasticTrainer and ElasticModel can be set to: Params of pyspark.ml, checked when set.

Names are those of Keras and of tl.Elastic, hence with underscores.
"""

import os
from collections.abc import Callable
from typing import Any

from pyspark.ml.param import Param, Params, TypeConverters

from tensorlightning.spark import checks
from tensorlightning.spark.job import SETTINGS, checked


def _param(name: str, doc: str, convert: Callable[[Any], Any], *, optional: bool = False) -> Param:
    """`optional`: None means something, or that it was not given."""

    def convert_given(value: Any) -> Any:
        if value is not None:
            return convert(value)
        if optional:
            return None
        raise TypeError(f"{name}=None: {name} must be given ({doc})")

    # _dummy() is how pyspark's own classes say: of each instance.
    return Param(Params._dummy(), name, doc, convert_given)


def _whole(name: str, doc: str, least: int = 1, *, optional: bool = False) -> Param:
    def convert(value: Any) -> int:
        return checks.whole(name, TypeConverters.toInt(value), least)

    return _param(name, doc, convert, optional=optional)


def _text(name: str, doc: str, *, optional: bool = False) -> Param:
    def convert(value: Any) -> str:
        # Not TypeConverters.toString: that of pyspark 3.5 stumbles over NumPy 2.
        text = os.fspath(value)
        if not isinstance(text, str) or not text:
            raise TypeError(f"{name}={value!r}: {name} must be a text")
        return text

    return _param(name, doc, convert, optional=optional)


def _flag(name: str, doc: str) -> Param:
    return _param(name, doc, TypeConverters.toBoolean)


def _names(value: Any) -> str | list[str]:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, (list, tuple)) and value and all(isinstance(n, str) and n for n in value):
        return list(value)
    raise TypeError(f"features={value!r}: it must be the name of a column, or a list of names")


def _function(value: Any) -> Callable[[], Any]:
    if callable(value):
        return value
    raise TypeError(
        f"build_model is {value!r}: it must be a function without arguments that returns a "
        "compiled Keras model"
    )


def _setting(name: str, doc: str) -> Param:
    return _param(name, doc, lambda value: checked(**{name: value})[name], optional=True)


class ModelParams(Params):
    """Of the trainer, and of the model that comes from it."""

    features = _param(
        "features", "column that the model takes, or one for each of its inputs", _names
    )
    prediction = _text("prediction", "column for what the model says")
    batch_size = _whole("batch_size", "rows in a step, and rows that are predicted at once")

    def setParams(self, **given: Any) -> Any:  # noqa: N802 (as pyspark's classes call it)
        """Sets several by name. Returns self."""
        if unknown := sorted(name for name in given if not self.hasParam(name)):
            known = ", ".join(param.name for param in self.params)
            raise TypeError(f"there is no option {unknown[0]!r}; there are {known}")
        self._set(**given)
        return self

    def names_of_features(self) -> list[str]:
        features = self.getOrDefault("features")
        return [features] if isinstance(features, str) else features


class TrainerParams(ModelParams):
    """Of the trainer alone."""

    build_model = _param(
        "build_model",
        "function without arguments that returns a compiled Keras model",
        _function,
        optional=True,
    )
    workers = _whole(
        "workers", "partitions, each with a worker; None: as many as the data has", optional=True
    )
    epochs = _whole("epochs", "how often each row is trained on")
    label = _text("label", "column that the model is to learn; None: it needs none", optional=True)
    shuffle = _flag("shuffle", "train on a partition's rows in another order in each epoch")
    seed = _whole("seed", "of that order", least=0)
    aggregator = _text("aggregator", "where the centre is: driver, task, or an address")
    secret_file = _text(
        "secret_file", "file with the secret of an aggregator that runs", optional=True
    )
    port = _whole("port", "of the aggregator in the driver; 0: any", least=0)
    snapshots = _text("snapshots", "folder in which the aggregator keeps the centre", optional=True)
    progress = _flag("progress", "tell how far workers are, while they train")
    hang_seconds = _param(
        "hang_seconds", "without a sign of life: a worker is killed then", checks.hang_seconds
    )
    stall_seconds = _param(
        "stall_seconds", "without a step, though there are rows: the same", checks.stall_seconds
    )
    record = _text("record", "file for the run's record, as JSON", optional=True)

    period = _setting("period", "steps between two exchanges")
    beta = _setting("beta", "how strongly workers and centre pull each other")
    density = _setting("density", "share of the entries that a worker sends")
    reply_density = _setting("reply_density", "the same for what it gets back")
    bits = _setting("bits", "per value sent")
    policy = _setting("policy", "elastic, local or dense")
    when = _setting("when", "when to exchange: period or adaptive")
    change = _setting("change", "for adaptive: how much change is enough")
    patience = _setting("patience", "seconds to wait for the aggregator before it is an error")

    def names_of_labels(self) -> list[str]:
        label = self.getOrDefault("label")
        return [] if label is None else [label]

    def settings(self) -> dict[str, Any]:
        """Of the exchange; only what was given."""
        given = {name: self.getOrDefault(name) for name in SETTINGS if self.isDefined(name)}
        return {name: value for name, value in given.items() if value is not None}
