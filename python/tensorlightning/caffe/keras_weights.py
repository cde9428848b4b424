"""Weights between Caffe's layers and Keras's, which keep the same numbers in other orders.

                Caffe                          Keras
    dense       InnerProduct (out, in)         Dense (in, out)
    2D          Convolution (out, in, h, w)    Conv2D (h, w, in, out)
    bias        (out)                          (out)

Keras's images are (height, width, channels) and Caffe's (channels, height, width). So a dense layer
right after a flatten counts its inputs in another order, and nothing in its shape tells. Say so by
`flattened={"ip1": (channels, height, width)}`: the shape that Caffe flattens.

Knows no Keras: a model is whatever has `layers` with `name`, `get_weights` and `set_weights`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tensorlightning.caffe.models import Floats, as_shape

Shape = tuple[int, int, int]


def to_keras(
    weights: Mapping[str, Sequence[ArrayLike]],
    model: Any,
    *,
    layers: Mapping[str, str] | None = None,
    flattened: Mapping[str, Shape] | None = None,
) -> list[str]:
    """Copies Caffe's weights into a Keras model, and returns the names of the layers.

    >>> to_keras(read_caffemodel("lenet.caffemodel"), model, flattened={"ip1": (50, 4, 4)})

    Layers are those of the same name, or what `layers` says: {Caffe's name: Keras's name}. Nothing
    is copied unless all fits.
    """
    new = []
    for name, layer in _pairs(weights, model, layers, flattened):
        wanted = [np.shape(array) for array in layer.get_weights()]
        given = [np.asarray(array, np.float32) for array in weights[name]]
        flat = (flattened or {}).get(name)
        arrays = [_kernel_to_keras(name, given[0], flat, wanted)]
        arrays += [array.reshape(-1) for array in given[1:]]
        _same_shapes(name, [array.shape for array in arrays], wanted)
        new.append((name, layer, arrays))
    for _, layer, arrays in new:
        layer.set_weights(arrays)
    return [name for name, _, _ in new]


def from_keras(
    model: Any,
    weights: Mapping[str, Sequence[ArrayLike]],
    *,
    layers: Mapping[str, str] | None = None,
    flattened: Mapping[str, Shape] | None = None,
) -> dict[str, list[Floats]]:
    """A Keras model's weights as Caffe has them, in the shapes of `weights`: the other way round.

    >>> solver.load(from_keras(model, solver.parameters, flattened={"ip1": (50, 4, 4)}))

    New arrays; layers that only one of the two has are left out.
    """
    new = {}
    for name, layer in _pairs(weights, model, layers, flattened):
        wanted = [np.shape(array) for array in weights[name]]
        given = [np.asarray(array, np.float32) for array in layer.get_weights()]
        flat = (flattened or {}).get(name)
        kernel = _kernel_from_keras(name, given[0], flat)
        arrays = [kernel, *given[1:]]
        if len(arrays) == len(wanted):
            arrays = [as_shape(array, s) for array, s in zip(arrays, wanted, strict=True)]
        _same_shapes(name, [array.shape for array in arrays], wanted)
        new[name] = [np.ascontiguousarray(array) for array in arrays]
    return new


def _pairs(
    weights: Mapping[str, Sequence[ArrayLike]],
    model: Any,
    layers: Mapping[str, str] | None,
    flattened: Mapping[str, Shape] | None,
) -> list[tuple[str, Any]]:
    """Layers of both that have weights: Caffe's name, Keras's layer."""
    keras = {layer.name: layer for layer in model.layers}
    if layers is None:
        layers = {name: name for name in weights if name in keras}
    for name, other in layers.items():
        if name not in weights:
            raise ValueError(f"Caffe's net has no parameters of a layer '{name}'")
        if other not in keras:
            raise ValueError(f"the Keras model has no layer '{other}'")
    pairs = [(name, keras[other]) for name, other in layers.items()]
    pairs = [(name, layer) for name, layer in pairs if layer.get_weights()]
    if not pairs:
        raise ValueError(
            f"no layers have the same name: Caffe has {', '.join(weights)}; Keras has "
            f"{', '.join(keras)}. Say which belong together with `layers`"
        )
    for name in flattened or {}:
        if name not in dict(pairs):
            raise ValueError(f"flattened names '{name}', which is none of the layers copied")
    _check_flattened(model, pairs, flattened or {})
    return pairs


def _check_flattened(
    model: Any, pairs: Sequence[tuple[str, Any]], flattened: Mapping[str, Shape]
) -> None:
    """A dense layer behind a Flatten of images must be told of: its shape does not show it."""
    caffe_name = {id(layer): name for name, layer in pairs}
    after: Any = None
    for layer in model.layers:
        if type(layer).__name__ == "Flatten":
            after = layer
        elif after is not None and layer.get_weights():
            name = caffe_name.get(id(layer))
            # A subclassed model's layers don't tell.
            given = getattr(after, "input", None)
            image = (0, 0, 0) if given is None else tuple(given.shape)[1:]
            ordered = len([size for size in image if size != 1]) < 2 or image[-1] == 1
            if name is not None and name not in flattened and not ordered:
                raise ValueError(
                    f"layer '{name}' comes after a flatten, which Caffe and Keras do in different "
                    f"orders: pass flattened={{'{name}': (channels, height, width)}}; "
                    f"Keras flattens {image}"
                )
            after = None


def _kernel_to_keras(
    name: str, kernel: Floats, flat: Shape | None, wanted: Sequence[tuple[int, ...]]
) -> Floats:
    if kernel.ndim == 4 and len(wanted[0]) == 4:
        return kernel.transpose(2, 3, 1, 0)
    if kernel.ndim == 4 and kernel.shape[:2] == (1, 1):
        kernel = kernel[0, 0]
    if kernel.ndim != 2:
        raise ValueError(f"layer '{name}' is {kernel.shape}: dense and 2D convolution are known")
    if flat is not None:
        _check_flat(name, flat, kernel.shape[1])
        kernel = kernel.reshape(-1, *flat).transpose(0, 2, 3, 1).reshape(len(kernel), -1)
    return kernel.T


def _kernel_from_keras(name: str, kernel: Floats, flat: Shape | None) -> Floats:
    if kernel.ndim == 4:
        return kernel.transpose(3, 2, 0, 1)
    if kernel.ndim != 2:
        raise ValueError(f"layer '{name}' is {kernel.shape}: dense and 2D convolution are known")
    kernel = kernel.T
    if flat is not None:
        _check_flat(name, flat, kernel.shape[1])
        channels, height, width = flat
        images = kernel.reshape(-1, height, width, channels)
        kernel = images.transpose(0, 3, 1, 2).reshape(len(kernel), -1)
    return kernel


def _check_flat(name: str, flat: Shape, inputs: int) -> None:
    if len(flat) != 3 or int(np.prod(flat)) != inputs:
        raise ValueError(f"flattened['{name}'] is {tuple(flat)}, and the layer has {inputs} inputs")


def _same_shapes(
    name: str, given: Sequence[tuple[int, ...]], wanted: Sequence[tuple[int, ...]]
) -> None:
    if list(given) != list(wanted):
        raise ValueError(f"layer '{name}' does not fit: {list(given)} for {list(wanted)}")
