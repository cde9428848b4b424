"""A net of Caffe's whose data comes from a DataFrame's rows.

    net = Net(Path("net.prototxt").read_text(), "net.prototxt")
    memory = net.from_memory((1, 28, 28))  # of a row: channels, height, width
    Solver(solver, memory.text)            # tensorlightning.caffe's
    memory.train.batch_size, memory.train.transform(rows), memory.blob

The layers that read data (Data, HDF5Data, ImageData, ...) become MemoryData layers with the same
tops, batches and phases. Their sources are not read. All else stays as it is.
"""

import warnings
from dataclasses import dataclass
from typing import Any

from tensorlightning.caffe import prototxt
from tensorlightning.caffe.prototxt import Message
from tensorlightning.spark.caffe_transform import Transform

# Where each kind of layer says how large a batch is.
_SOURCES = {
    "Data": "data_param",
    "HDF5Data": "hdf5_data_param",
    "ImageData": "image_data_param",
    "Input": "input_param",
    "MemoryData": "memory_data_param",
    "SocketData": "data_param",
    "WindowData": "window_data_param",
}
# What these would do to images is to be done to the rows.
_TO_IMAGES = ("new_height", "new_width")
_REPLACED = (*_SOURCES.values(), "transform_param", "type", "top")
_UNUSED_LABEL = "tensorlightning_no_label"
TRAIN, TEST = "TRAIN", "TEST"

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Input:
    """The data layer of a phase."""

    batch_size: int
    transform: Transform


@dataclass(frozen=True)
class MemoryNet:
    text: str
    row_shape: Shape
    train: Input
    test: Input
    labelled: bool  # Whether rows have a label.
    blob: str  # What predicts: the input of what measures the net, else its last output.


class Net:
    """A net as it was written. What rows can't feed is a ValueError that names file and line."""

    def __init__(self, text: str, name: str = "net"):
        self._name = name
        self._net = prototxt.parse(text, name)
        if self._net.messages("layers"):
            raise self._error("layers", "is Caffe's old format: upgrade_net_proto_text rewrites it")
        if not self._net.messages("layer"):
            raise ValueError(f"{name}: there is no layer")
        train, test = (self._data_layers(phase) for phase in (TRAIN, TEST))
        if not train:
            known = ", ".join(sorted(_SOURCES))
            raise ValueError(f"{name}: no layer of phase TRAIN reads data: {known}")
        self._train, self._test = train, test or train
        for layers in (self._train, self._test):
            self._check_tops(layers)
        if not test:
            # They are what predictions are made from.
            for layer in train:
                layer.remove("include", "exclude")

    @property
    def shape(self) -> Shape | None:
        """(channels, height, width) of a row, if the net says it."""
        first = self._train[0]
        kind = first.value("type")
        if kind == "MemoryData":
            param = first.message("memory_data_param")
            sizes = [param.value(name) for name in ("channels", "height", "width")]
            return tuple(sizes) if all(isinstance(size, int) for size in sizes) else None
        shapes = first.message("input_param").messages("shape")
        if kind not in ("Input", "SocketData") or not shapes:
            return None
        dims = shapes[0].values("dim")
        return caffe_shape(tuple(dims[1:] if kind == "Input" else dims))

    def from_memory(self, row_shape: Shape, batch_size: int | None = None) -> MemoryNet:
        """For rows of that shape. `batch_size` is for phase TRAIN, instead of the net's own."""
        first = self._train[0]
        shape = caffe_shape(row_shape)
        train = Input(batch_size or self._batch_size(first), self._transform(first, shape))
        test = train
        if self._test[0] is not first:
            other = self._test[0]
            test = Input(self._batch_size(other), self._transform(other, shape))
        return MemoryNet(
            text=prototxt.text(self._converted(shape, train, test)),
            row_shape=shape,
            train=train,
            test=test,
            labelled=len(_tops(self._train)) == 2,
            blob=self._blob(),
        )

    def _data_layers(self, phase: str) -> list[Message]:
        layers = self._net.messages("layer")
        return [each for each in layers if each.value("type") in _SOURCES and _is_in(each, phase)]

    def _check_tops(self, layers: list[Message]) -> None:
        """Rows have features and a label, or features alone."""
        count = len(_tops(layers))
        if len(layers) > 2 or not 1 <= count <= 2:
            names = ", ".join(str(layer.value("name")) for layer in layers)
            raise self._error_at(layers[0], f"{names}: {count} tops, and rows feed one or two")

    def _batch_size(self, layer: Message) -> int:
        kind = layer.value("type")
        param = layer.message(_SOURCES[kind])
        if kind == "Input":
            shapes = param.messages("shape")
            size = (shapes[0].values("dim") or [None])[0] if shapes else None
        else:
            size = param.value("batch_size")
        if not isinstance(size, int) or size < 1:
            raise self._error_at(layer, f"'{layer.value('name')}' has no batch_size")
        return size

    def _transform(self, layer: Message, row_shape: Shape) -> Transform:
        param = layer.message(_SOURCES[layer.value("type")])
        for name in _TO_IMAGES:
            if param.value(name):
                _say(f"{name} of layer '{layer.value('name')}' is left out: rows are as they are")
        try:
            transform = Transform.read(layer.message("transform_param"))
            transform.shape_after(row_shape)
            return transform
        except (OSError, ValueError) as error:
            raise self._error_at(layer, f"'{layer.value('name')}': {error}") from error

    def _converted(self, row_shape: Shape, train: Input, test: Input) -> Message:
        """The net with other data layers."""
        others: dict[int, Message | None] = {}
        for layers, given in ((self._test, test), (self._train, train)):
            others |= {id(layer): None for layer in layers}
            others[id(layers[0])] = _memory_layer(layers, row_shape, given)
        net = Message()
        for each in self._net.fields:
            value = others.get(id(each.value), each.value)
            if value is not None:
                net.fields.append(prototxt.Field(each.name, value, each.line))
        return net

    def _blob(self) -> str:
        layers = [layer for layer in self._net.messages("layer") if _is_in(layer, TEST)]
        for measures in (lambda kind: kind == "Accuracy", lambda kind: kind.endswith("Loss")):
            for layer in layers:
                if measures(str(layer.value("type"))) and layer.values("bottom"):
                    return layer.values("bottom")[0]
        used = {bottom for layer in layers for bottom in layer.values("bottom")}
        tops = [top for layer in layers for top in layer.values("top")]
        return next((top for top in reversed(tops) if top not in used), tops[-1])

    def _error(self, field: str, what: str) -> ValueError:
        return ValueError(f"{self._name}:{self._net.line(field)}: {field} {what}")

    def _error_at(self, layer: Message, what: str) -> ValueError:
        found = (each.line for each in self._net.fields if each.value is layer)
        return ValueError(f"{self._name}:{next(found)}: {what}")


def caffe_shape(shape: Shape) -> Shape:
    """As Caffe has it: (channels, height, width). A flat row is all channels."""
    if len(shape) > 3:
        raise ValueError(f"rows of shape {shape}: Caffe's are (channels, height, width) at most")
    return (*shape, 1, 1) if len(shape) == 1 else (1,) * (3 - len(shape)) + shape


def _memory_layer(layers: list[Message], row_shape: Shape, given: Input) -> Message:
    channels, height, width = given.transform.shape_after(row_shape)
    made = Message([each for each in layers[0].fields if each.name not in _REPLACED])
    made.add("type", "MemoryData")
    for top in [*_tops(layers), _UNUSED_LABEL][:2]:
        made.add("top", top)
    sizes = Message().add("batch_size", given.batch_size).add("channels", channels)
    return made.add("memory_data_param", sizes.add("height", height).add("width", width))


def _tops(layers: list[Message]) -> list[Any]:
    return [top for layer in layers for top in layer.values("top")]


def _is_in(layer: Message, phase: str) -> bool:
    def meets(rule: Message) -> bool:
        return rule.value("phase", phase) == phase

    if rules := layer.messages("include"):
        return any(meets(rule) for rule in rules)
    return not any(rule.value("phase") == phase for rule in layer.messages("exclude"))


def _say(what: str) -> None:
    warnings.warn(what, stacklevel=4)
