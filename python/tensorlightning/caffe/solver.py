"""tensorlightning.caffe.Solver: Caffe in this process, fed from memory."""

import contextlib
import ctypes
import json
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from tensorlightning.caffe import _library, checking
from tensorlightning.caffe._library import Array, CaffeError
from tensorlightning.caffe.models import Floats, copy_weights


class _Handle:
    """The native solver; freed when neither the solver nor an array of its memory is left."""

    def __init__(self, pointer: int):
        self.pointer = pointer
        weakref.finalize(self, _library.load().tl_caffe_free, pointer)


class Solver:
    """A solver of Caffe's and its net.

    >>> solver = Solver("base_lr: 0.01 lr_policy: 'fixed'", net_text)
    >>> solver.feed(images, labels)
    >>> loss = solver.step(100)

    The net is fed through its MemoryData layers. What the solver's text says about nets, tests and
    snapshots is not used: the net is `net`, and the rest is yours to call. Without ``max_iter`` it
    trains as long as it is told to.

    Caffe ends its process when a text is wrong. So both are tried in another process first, which
    takes half a second and memory for the net; then what is wrong is a CaffeError here. Pass
    ``check=False`` for texts that were tried before.

    All calls of one solver happen in a thread of its own: Caffe keeps its random numbers by thread.
    Ctrl-C ends a call after the iteration under way.
    """

    def __init__(self, solver: str, net: str, *, check: bool = True):
        self._texts = (solver, net)
        self._check = check
        if check:
            checking.check(solver, net)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="caffe")
        self._closed = False
        self._has_test = False
        # What Caffe reads from, until it is fed anew.
        self._fed: dict[tuple[bool, str], tuple[Floats, Floats]] = {}
        create = _library.call
        pointer = self._thread.submit(create, "create", solver.encode(), net.encode(), 0).result()
        self._handle = _Handle(pointer)
        self._parameters = self._read_parameters()

    @property
    def parameters(self) -> dict[str, list[Floats]]:
        """Each layer's parameters, as ``read_caffemodel`` has them, but not copied.

        What is written into these arrays is in the net, and training changes them. They may be used
        after the solver is closed.
        """
        return {layer: list(arrays) for layer, arrays in self._parameters.items()}

    @property
    def iteration(self) -> int:
        """How many iterations it has trained."""
        return _library.load().tl_caffe_iteration(self._handle.pointer)

    def feed(
        self,
        data: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        layer: str = "",
        test: bool = False,
    ) -> None:
        """The examples that the next steps train on, batch by batch, and again from the beginning.

        Their number is a multiple of the batch that the net's text says, and each has as many
        entries as it says: (channels, height, width). float32 in C order is not copied: don't write
        into it before other data is fed. Which `layer` must be told if the net has several; with
        `test` it is one of the net that ``predict`` and ``test`` use, which feed one by themselves.
        """
        if test:
            self._need_test()
        self._feed(test, data, labels, layer)

    def step(self, iterations: int = 1) -> float:
        """Trains, and returns the mean of the losses.

        A loss that is no number is a CaffeError, and the parameters stay as they were before it.
        """
        if iterations < 1:
            raise ValueError(f"{iterations} iterations: at least one")
        loss = ctypes.c_double()
        self._run("step", iterations, ctypes.byref(loss))
        return loss.value

    def join(self, iteration: int = 0) -> None:
        """Before the first step: takes part in its job now. The parameters then are the job's.

        Iterations are counted from `iteration` on: a training that was begun elsewhere goes on with
        its learning rate.
        """
        self._run("join", iteration)

    def statistics(self) -> dict[str, Any]:
        """What it has sent to its job and received, as ``tl.statistics()`` has it."""
        return json.loads(_library.load().tl_caffe_statistics(self._handle.pointer))

    def predict(self, data: ArrayLike, blob: str, *, layer: str = "") -> Floats:
        """What `blob` holds for each of the examples, in phase TEST. Any number of them."""
        self._need_test()
        batch, shape = self._input(True, layer)
        examples = _examples(data, shape)
        labels = np.zeros(batch, np.float32)
        results = []
        for start in range(0, len(examples), batch):
            part = examples[start : start + batch]
            padding = np.zeros((batch - len(part), *shape), np.float32)
            self._feed(True, np.concatenate([part, padding]), labels, layer)
            self._run("forward_test")
            result = self.blob(blob, test=True)
            if result.shape[:1] != (batch,):
                raise ValueError(f"blob '{blob}' is {result.shape}: not one row for each example")
            results.append(result[: len(part)])
        if not results:
            raise ValueError("no examples")
        return np.concatenate(results)

    def test(self, data: ArrayLike, labels: ArrayLike, *, layer: str = "") -> dict[str, Any]:
        """The net's outputs in phase TEST, such as accuracy and loss: the mean over all batches."""
        self._need_test()
        batch, _ = self._input(True, layer)
        count = self._feed(True, data, labels, layer)
        sums: dict[str, Any] = {}
        for _ in range(count // batch):
            self._run("forward_test")
            for name, value in self._outputs().items():
                sums[name] = sums[name] + value if name in sums else value
        return {name: total / (count // batch) for name, total in sums.items()}

    def blob(self, name: str, *, test: bool = False) -> Floats:
        """A copy of what one of the net's blobs holds since the last step, or test."""
        array = Array()
        found = self._look("blob", int(test), name.encode(), ctypes.byref(array))
        if not found:
            raise KeyError(f"the net has no blob '{name}'")
        return self._view(array).copy()

    def load(self, weights: Mapping[str, Sequence[ArrayLike]]) -> list[str]:
        """Copies weights, of ``read_caffemodel`` for instance, into layers of the same name.

        Returns the names of the layers; others of either side stay. Shapes must be the same.
        """
        return copy_weights(weights, self._parameters)

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Writes the net and its parameters as a .caffemodel."""
        self._run("snapshot", os.fsencode(path))

    def finish(self) -> None:
        """Of several workers: a last exchange. The parameters then are what all have learned.

        Happens by itself after the solver's ``max_iter`` iterations.
        """
        self._run("finish")

    def close(self) -> None:
        """Leaves its job and trains no more. No harm if it is closed already."""
        if not self._closed:
            try:
                self._run("close")
            finally:
                self._closed = True
                self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, name: str, *arguments: Any) -> None:
        """A call that may take its time, in the solver's thread."""
        if self._closed:
            raise CaffeError("the solver is closed")
        pointer = self._handle.pointer
        running = self._thread.submit(_library.call, name, pointer, *arguments)
        try:
            running.result()
        except KeyboardInterrupt:
            interrupt: Callable[[int, int], None] = _library.load().tl_caffe_interrupt
            interrupt(pointer, 1)
            try:
                _wait_for(running)
            finally:
                interrupt(pointer, 0)
            raise

    def _look(self, name: str, *arguments: Any) -> bool:
        return getattr(_library.load(), f"tl_caffe_{name}")(self._handle.pointer, *arguments) == 0

    def _view(self, array: Array) -> Floats:
        """The memory itself; the handle lives as long as the view."""
        shape = tuple(array.shape[: array.axes])
        address = ctypes.cast(array.data, ctypes.c_void_p).value
        memory = (ctypes.c_float * int(np.prod(shape, dtype=np.int64))).from_address(address)
        memory.handle = self._handle
        return np.frombuffer(memory, np.float32).reshape(shape)

    def _read_parameters(self) -> dict[str, list[Floats]]:
        parameters: dict[str, list[Floats]] = {}
        array = Array()
        number = 0
        while self._look("parameter", number, ctypes.byref(array)):
            parameters.setdefault(array.name.decode(), []).append(self._view(array))
            number += 1
        return parameters

    def _outputs(self) -> dict[str, Floats]:
        outputs: dict[str, Floats] = {}
        array = Array()
        while self._look("output", 1, len(outputs), ctypes.byref(array)):
            outputs[array.name.decode()] = self._view(array).copy()
        return outputs

    def _input(self, test: bool, layer: str) -> tuple[int, tuple[int, ...]]:
        """A MemoryData layer's batch, and the shape of an example."""
        inputs: dict[str, list[int]] = {}
        array = Array()
        while self._look("input", int(test), len(inputs), ctypes.byref(array)):
            inputs[array.name.decode()] = array.shape[: array.axes]
        name = next(iter(inputs)) if not layer and len(inputs) == 1 else layer
        if name not in inputs:
            raise ValueError(
                f"which MemoryData layer? '{layer}' was asked for, "
                f"and in this phase the net has: {', '.join(inputs) or 'none'}"
            )
        batch, *shape = inputs[name]
        return batch, tuple(shape)

    def _feed(self, test: bool, data: ArrayLike, labels: ArrayLike | None, layer: str) -> int:
        if self._closed:
            raise CaffeError("the solver is closed")
        _, shape = self._input(test, layer)
        examples = _examples(data, shape)
        count = len(examples)
        given = np.zeros(count) if labels is None else np.asarray(labels)
        if given.size != count:
            raise ValueError(f"{given.size} labels for {count} examples")
        numbers = np.ascontiguousarray(given.reshape(count), np.float32)
        floats = ctypes.POINTER(ctypes.c_float)
        _library.call(
            "feed",
            self._handle.pointer,
            int(test),
            layer.encode(),
            examples.ctypes.data_as(floats),
            numbers.ctypes.data_as(floats),
            count,
        )
        self._fed[test, layer] = (examples, numbers)
        return count

    def _need_test(self) -> None:
        if self._closed:
            raise CaffeError("the solver is closed")
        if not self._has_test:
            if self._check:
                checking.check(*self._texts, test=True)
            self._run("create_test")
            self._has_test = True


def _examples(data: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """As Caffe reads it: (count, channels, height, width)."""
    array = np.ascontiguousarray(data, np.float32)
    entries = int(np.prod(shape))
    each = array.shape[1:]
    squeezed = tuple(size for size in shape if size != 1)
    fits = each == (entries,) or tuple(size for size in each if size != 1) == squeezed
    if array.ndim == 0 or not fits:
        raise ValueError(f"examples of shape {each}: the net takes {shape}")
    return array.reshape(len(array), *shape)


def _wait_for(running: Future[Any]) -> None:
    """However often Ctrl-C is pressed: it uses this process's memory."""
    while not running.done():
        with contextlib.suppress(KeyboardInterrupt):
            wait([running])
