"""Feeds Caffe's layer SocketData from another program: the side that listens.

    tops = {"data": ((1, 28, 28), "uint8"), "label": ((), "float32")}
    with Feeder("unix:/tmp/feed.sock", **tops) as feeder:
        caffe = subprocess.Popen(["tlrun", "caffe", "train", "--solver=solver.prototxt"])
        feeder.serve(images, labels)  # epoch after epoch, until Caffe has had enough

The net says where to connect, and what a record looks like:

    layer {
      name: "data" type: "SocketData" top: "data" top: "label"
      data_param { source: "unix:/tmp/feed.sock" batch_size: 64 }
      input_param { shape { dim: 1 dim: 28 dim: 28 } shape { } }
    }

One feeder is for one layer: for a net that is tested too, a second one on another address, in a
thread of its own. The bytes are described in caffe_layers/feed_format.h. They are neither encrypted
nor authenticated: use a Unix socket, or a network that you trust.
"""

import contextlib
import errno
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_HELLO = struct.Struct("<4sHBB")
_TOP = struct.Struct("<BBH")
_FRAME = struct.Struct("<B3xI")
_MAGIC, _VERSION = b"TLFD", 1
_TYPES = {"float32": 0, "uint8": 1}
_RECORDS, _END_OF_EPOCH, _END_OF_DATA, _FAILURE = 1, 2, 3, 4
_MOST_TOPS, _MOST_DIMENSIONS, _MOST_TEXT = 16, 8, 4096
# Of a frame: enough that its header does not matter, little enough to be gathered in memory.
_FRAME_BYTES = 4 << 20


class HungUpError(ConnectionError):
    """Caffe has closed the connection: it has had enough, or has failed (its output says which)."""


class Feeder:
    """Listens at an address, unix:/path or tcp:host:port, for the one layer that it feeds.

    The tops are keyword arguments, in the layer's order: a shape without the batch, and a type,
    float32 or uint8. Port 0 is any free one: `address` says which.
    """

    def __init__(self, address: str, *, patience: float = 60.0, **tops: tuple[Sequence[int], str]):
        self._record = _record_type(tops)
        self._hello = _hello(tops)
        self._patience = patience
        self._connection: socket.socket | None = None
        self._records_in_epoch = 0
        self._listener, self.address = _listen(address)

    def __enter__(self) -> "Feeder":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._connection is not None and error is not None:
            with contextlib.suppress(OSError):
                self.fail(f"{type(error).__name__}: {error}")
        self.close()

    def accept(self) -> None:
        """Waits for the layer. Sending does it too."""
        if self._connection is not None:
            return
        self._listener.settimeout(self._patience)
        try:
            connection, _ = self._listener.accept()
        except TimeoutError:
            raise TimeoutError(
                f"no SocketData layer has connected to {self.address} within {self._patience:g} s"
            ) from None
        # A step may take as long as it likes, and Caffe reads ahead only so far.
        connection.settimeout(None)
        self._connection = connection
        self._write(self._hello)

    def send(self, *arrays: Any) -> None:
        """Records: an array for each top, all of the same length."""
        records = self._gather(arrays)
        self.accept()
        step = max(1, _FRAME_BYTES // self._record.itemsize)
        for begin in range(0, len(records), step):
            piece = records[begin : begin + step]
            self._write(_FRAME.pack(_RECORDS, len(piece)))
            self._write(piece.tobytes())
        self._records_in_epoch += len(records)

    def end_epoch(self) -> None:
        """A marker between records; the layer goes on, and says that an epoch is over."""
        if self._records_in_epoch == 0:
            raise ValueError("an epoch without records")
        self._write(_FRAME.pack(_END_OF_EPOCH, 0))
        self._records_in_epoch = 0

    def end(self) -> None:
        """There is no more: a Caffe that wants more ends, and says so."""
        self.accept()
        self._write(_FRAME.pack(_END_OF_DATA, 0))

    def fail(self, reason: str) -> None:
        """The same, with a reason that Caffe shows."""
        self.accept()
        text = reason.encode()[:_MOST_TEXT] or b"no reason given"
        self._write(_FRAME.pack(_FAILURE, len(text)) + text)

    def serve(self, *arrays: Any, epochs: int | None = None, seed: int | None = 0) -> int:
        """Sends all records epoch after epoch, in an order that changes; None leaves it alone.

        Returns how many epochs were sent in full when Caffe hangs up, which ends it well; without
        `epochs` nothing else does.
        """
        columns = [np.asarray(array) for array in arrays]
        order = np.random.default_rng(seed)
        step = max(1, _FRAME_BYTES // self._record.itemsize)
        done = 0
        with contextlib.suppress(HungUpError):
            while epochs is None or done < epochs:
                number = len(columns[0])
                chosen = np.arange(number) if seed is None else order.permutation(number)
                for begin in range(0, number, step):
                    self.send(*(column[chosen[begin : begin + step]] for column in columns))
                self.end_epoch()
                done += 1
            self.end()
        return done

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._listener.fileno() >= 0:
            kind, _, path = self.address.partition(":")
            if kind == "unix":  # While it still listens: nobody else can have taken the path.
                Path(path).unlink(missing_ok=True)
            self._listener.close()

    def _gather(self, arrays: Sequence[Any]) -> np.ndarray:
        names = self._record.names or ()
        if len(arrays) != len(names):
            raise ValueError(f"{len(arrays)} arrays for {len(names)} tops: {', '.join(names)}")
        columns = [np.asarray(array) for array in arrays]
        records = np.empty(len(columns[0]), self._record)
        for name, column in zip(names, columns, strict=True):
            expected = records[name].shape
            if column.shape != expected:
                raise ValueError(f"{name} has shape {column.shape}, and should have {expected}")
            if self._record[name].base == np.uint8 and column.dtype not in (np.uint8, np.bool_):
                raise ValueError(f"{name} is sent as uint8, and given as {column.dtype}")
            records[name] = column
        return records

    def _write(self, data: bytes) -> None:
        if self._connection is None:
            raise ValueError("nobody has connected yet: accept() or send() first")
        try:
            self._connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise HungUpError(f"the layer at {self.address} has closed the connection") from None


def _record_type(tops: dict[str, tuple[Sequence[int], str]]) -> np.dtype:
    if not 1 <= len(tops) <= _MOST_TOPS:
        raise ValueError(f"{len(tops)} tops: there are 1 to {_MOST_TOPS}")
    for name, (shape, kind) in tops.items():
        if kind not in _TYPES:
            raise ValueError(f"{name} is {kind}: it can be {' or '.join(_TYPES)}")
        if len(shape) > _MOST_DIMENSIONS or any(dim < 1 for dim in shape):
            raise ValueError(
                f"{name} has shape {tuple(shape)}: 0 to {_MOST_DIMENSIONS} positive ones"
            )
    # Packed, one top after the other: as the format has it.
    return np.dtype(
        [(n, np.dtype(kind).newbyteorder("<"), tuple(shape)) for n, (shape, kind) in tops.items()]
    )


def _hello(tops: dict[str, tuple[Sequence[int], str]]) -> bytes:
    hello = _HELLO.pack(_MAGIC, _VERSION, len(tops), 0)
    for shape, kind in tops.values():
        hello += _TOP.pack(_TYPES[kind], len(shape), 0) + struct.pack(f"<{len(shape)}I", *shape)
    return hello


def _listen(address: str) -> tuple[socket.socket, str]:
    """The socket, and the address with its port."""
    kind, _, place = address.partition(":")
    if kind == "unix" and place:
        _remove_dead(address)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(place)
        except OSError as error:
            listener.close()
            raise OSError(error.errno, f"{address}: {error.strerror}") from None
        listener.listen()
        return listener, address
    host, colon, port = place.rpartition(":")
    if kind != "tcp" or not colon or not port.isdecimal():
        raise ValueError(f"{address!r} is no address: unix:/path or tcp:host:port")
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    listener = socket.create_server((name, int(port)), family=family)
    return listener, f"tcp:{host}:{listener.getsockname()[1]}"


def _remove_dead(address: str) -> None:
    """What an earlier feeder has left behind, if it is a socket on which nobody listens."""
    path = address.partition(":")[2]
    if not Path(path).is_socket():
        return
    # Of another type: whoever listens would take a connection for its layer.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        try:
            stranger.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
            return
        except OSError as error:
            if error.errno != errno.EPROTOTYPE:
                raise
    raise OSError(errno.EADDRINUSE, f"{address}: another feeder listens there")
