"""Reads and writes .caffemodel files. Needs no Caffe: the format is protobuf's (see wire.py)."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorlightning.caffe import wire
from tensorlightning.caffe.wire import Field, bytes_of, fields

Floats = NDArray[np.float32]

# Of caffe.proto: NetParameter, LayerParameter, V1LayerParameter, BlobProto, BlobShape.
NET_NAME, NET_V1_LAYER, NET_LAYER = 1, 2, 100
LAYER_NAME, LAYER_TYPE, LAYER_BLOBS = 1, 2, 7
V1_NAME, V1_BLOBS = 4, 6
BLOB_LEGACY_SHAPE = (1, 2, 3, 4)
BLOB_DATA, BLOB_SHAPE, BLOB_DOUBLE_DATA = 5, 7, 8
SHAPE_DIM = 1


def read_caffemodel(path: str | os.PathLike[str]) -> dict[str, list[Floats]]:
    """Each layer's parameters, in the order of the file; layers without any are left out.

    >>> weights, bias = read_caffemodel("lenet.caffemodel")["ip1"]

    Knows the files of old Caffes too: those with `layers`, and blobs of four axes. A file that is
    no .caffemodel is a ValueError.
    """
    return weights_in(Path(path).read_bytes(), os.fspath(path))


def weights_in(caffemodel: bytes, name: str = "this") -> dict[str, list[Floats]]:
    """The same of a file's content. `name` is for what is wrong with it."""
    try:
        net = fields(caffemodel)
        layers = [_layer(field) for field in net if field.number in (NET_LAYER, NET_V1_LAYER)]
    except ValueError as error:
        raise ValueError(f"{name} is no .caffemodel: {error}") from error
    if not layers:
        raise ValueError(f"{name} is no .caffemodel: it has no layers")
    weights: dict[str, list[Floats]] = {}
    for layer, blobs in layers:
        if blobs and layer in weights:
            raise ValueError(
                f"{name} has two layers '{layer}' with parameters: only layers with names of their "
                "own can be read"
            )
        if blobs:
            weights[layer] = blobs
    return weights


def read_blob(path: str | os.PathLike[str]) -> Floats:
    """The one blob of a .binaryproto, such as Caffe's mean images are."""
    try:
        return _blob(Field(0, wire.BYTES, memoryview(Path(path).read_bytes())))
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} is no .binaryproto: {error}") from error


def write_caffemodel(
    path: str | os.PathLike[str],
    weights: Mapping[str, Sequence[ArrayLike]],
    *,
    like: str | os.PathLike[str] | None = None,
) -> None:
    """Writes parameters as Caffe reads them: `caffe test --weights`, or fine-tuning.

    `like` names a .caffemodel of the same net: then all else that it says, such as types of layers,
    is written too, and so are the parameters of layers that `weights` has not. Shapes must be the
    same. The file is there whole or not at all.
    """
    if like is None:
        layers = [_new_layer(name, arrays) for name, arrays in weights.items()]
        content = b"".join(wire.field(NET_LAYER, layer) for layer in layers)
    else:
        into = read_caffemodel(like)
        for name in weights:
            if name not in into:
                raise ValueError(f"{os.fspath(like)} has no parameters of a layer '{name}'")
        copy_weights(weights, into)
        new = {name: into[name] for name in weights}
        content = b"".join(_with_blobs(field, new) for field in fields(Path(like).read_bytes()))
    partial = Path(f"{os.fspath(path)}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def copy_weights(
    weights: Mapping[str, Sequence[ArrayLike]], into: Mapping[str, Sequence[Floats]]
) -> list[str]:
    """Copies between layers of the same name. All shapes are looked at first."""
    names = [name for name in weights if into.get(name) and len(weights[name]) > 0]
    fitted: dict[str, list[Floats]] = {}
    for name in names:
        wanted = [array.shape for array in into[name]]
        given = [np.shape(array) for array in weights[name]]
        if len(given) == len(wanted):
            pairs = zip(weights[name], wanted, strict=True)
            fitted[name] = [as_shape(array, shape) for array, shape in pairs]
        if [array.shape for array in fitted.get(name, [])] != wanted:
            raise ValueError(f"layer '{name}' has {wanted}, and the weights are {given}")
    for name, arrays in fitted.items():
        for target, array in zip(into[name], arrays, strict=True):
            target[...] = array
    return names


def as_shape(array: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """The array; in this shape if one of the two is the other with ones in front, to four axes.

    Old files have (1, 1, out, in) for (out, in), and (1, 1, 1, out) for (out).
    """
    values = np.asarray(array, np.float32)
    short, long = sorted((values.shape, shape), key=len)
    padded = (1,) * (len(long) - len(short)) + short
    return values.reshape(shape) if len(long) == 4 and padded == long else values


def _layer(layer: Field) -> tuple[str, list[Floats]]:
    v1 = layer.number == NET_V1_LAYER
    inside = fields(bytes_of(layer))
    names = [field for field in inside if field.number == (V1_NAME if v1 else LAYER_NAME)]
    blobs = [field for field in inside if field.number == (V1_BLOBS if v1 else LAYER_BLOBS)]
    name = bytes(bytes_of(names[-1])).decode() if names else ""
    return name, [_blob(field) for field in blobs]


def _blob(blob: Field) -> Floats:
    inside = fields(bytes_of(blob))
    data = wire.numbers(inside, BLOB_DATA, np.dtype("<f4"))
    double = wire.numbers(inside, BLOB_DOUBLE_DATA, np.dtype("<f8"))
    values = (double if len(double) else data).astype(np.float32)
    shapes = [field for field in inside if field.number == BLOB_SHAPE]
    if shapes:
        shape = wire.varints(fields(bytes_of(shapes[-1])), SHAPE_DIM)
    else:
        legacy = [wire.varints(inside, number) for number in BLOB_LEGACY_SHAPE]
        shape = [given[-1] if given else 0 for given in legacy] if any(legacy) else []
    if int(np.prod(shape, dtype=object)) != len(values):
        raise ValueError(f"a blob of shape {tuple(shape)} has {len(values)} entries")
    return values.reshape(shape)


def _blob_bytes(array: ArrayLike) -> bytes:
    values = np.asarray(array, "<f4")
    dims = b"".join(wire.varint(size) for size in values.shape)
    shape = wire.field(SHAPE_DIM, dims)
    return wire.field(BLOB_DATA, values.tobytes()) + wire.field(BLOB_SHAPE, shape)


def _new_layer(name: str, arrays: Sequence[ArrayLike]) -> bytes:
    blobs = b"".join(wire.field(LAYER_BLOBS, _blob_bytes(array)) for array in arrays)
    return wire.field(LAYER_NAME, name.encode()) + blobs


def _with_blobs(layer: Field, weights: Mapping[str, Sequence[ArrayLike]]) -> bytes:
    """A field of the net as it was, but for the blobs of a layer that has others now."""
    if layer.number not in (NET_LAYER, NET_V1_LAYER):
        return wire.again(layer)
    name, old = _layer(layer)
    if name not in weights or not old:
        return wire.again(layer)
    number = V1_BLOBS if layer.number == NET_V1_LAYER else LAYER_BLOBS
    kept = [wire.again(field) for field in fields(bytes_of(layer)) if field.number != number]
    blobs = [wire.field(number, _blob_bytes(array)) for array in weights[name]]
    return wire.field(layer.number, b"".join(kept + blobs))
