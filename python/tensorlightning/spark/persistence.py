"""Saving and loading, on any file system that Spark knows.

    path/payload/    Parquet: names and bytes, in pieces
    path/metadata/   one line of JSON, as pyspark writes it, and each payload's length and digest

The metadata come last: what was saved only in part is not taken for whole.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.ml.util import (
    DefaultParamsReader,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)

FORMAT = 1
# A piece is a task of Spark's, whose messages have limits (spark.rpc.message.maxSize).
PIECE_BYTES = 8 << 20
SCHEMA = "name string, piece int, content binary"

Payload = dict[str, bytes]


class LoadError(ValueError):
    """Nothing to load there, or something else, or damaged; says which."""


class Persistent(MLWritable, MLReadable):
    """For Params that also hold bytes."""

    # Params that are not fit for JSON, but are in the payload.
    IN_PAYLOAD: tuple[str, ...] = ()

    def to_payload(self) -> Payload:
        raise NotImplementedError

    @classmethod
    def from_payload(cls, payload: Payload) -> Any:
        raise NotImplementedError

    def write(self) -> "Writer":
        return Writer(self)

    @classmethod
    def read(cls) -> "Reader":
        return Reader(cls)


class Writer(MLWriter):
    def __init__(self, instance: Any):
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:  # noqa: N802 (pyspark's)
        payload = self._instance.to_payload()
        pieces = list(_pieces(payload))
        rows = self.sc.parallelize(pieces, len(pieces))
        frame = self.sparkSession.createDataFrame(rows, SCHEMA)
        try:
            frame.write.mode("error").parquet(_under(path, "payload"))
        except Exception as error:
            if "already exists" in str(error).lower():
                raise FileExistsError(
                    f"{path} is there already: .write().overwrite().save(path) replaces it"
                ) from None
            raise
        DefaultParamsWriter.saveMetadata(
            self._instance,
            path,
            self.sc,
            extraMetadata={"format": FORMAT, "payload": _digests(payload)},
            paramMap=_for_json(self._instance),
        )


class Reader(MLReader):
    def __init__(self, wanted: type):
        super().__init__()
        self._wanted = wanted

    def load(self, path: str) -> Any:
        metadata = self._metadata(path)
        payload = self._payload(path)
        for name, digest in metadata["payload"].items():
            if name not in payload or _digest(payload[name]) != digest:
                raise LoadError(f"{path} is damaged: {name} is not what was saved")
        instance = self._wanted.from_payload(payload)
        instance._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(instance, metadata)
        return instance

    def _metadata(self, path: str) -> dict[str, Any]:
        name = self._wanted.__name__
        try:
            metadata = DefaultParamsReader.loadMetadata(path, self.sc)
        except Exception as error:
            raise LoadError(
                f"there is no {name} in {path}: its metadata can't be read, perhaps because "
                f"saving it was interrupted ({_first_line(error)})"
            ) from error
        found = metadata.get("class", "").rpartition(".")[2]
        if found != name:
            raise LoadError(f"there is no {name} in {path}, but a {found or 'stranger'}")
        if metadata.get("format") != FORMAT:
            raise LoadError(
                f"{path} was saved by another version of TensorLightning: its format is "
                f"{metadata.get('format')}, and this one reads {FORMAT}"
            )
        return metadata

    def _payload(self, path: str) -> Payload:
        try:
            rows = self.sparkSession.read.parquet(_under(path, "payload")).collect()
        except Exception as error:
            raise LoadError(
                f"{path} is damaged: its payload can't be read ({_first_line(error)})"
            ) from error
        payload: dict[str, bytearray] = {}
        for row in sorted(rows, key=lambda row: (row.name, row.piece)):
            payload.setdefault(row.name, bytearray()).extend(row.content)
        return {name: bytes(content) for name, content in payload.items()}


def _pieces(payload: Mapping[str, bytes]) -> Iterator[tuple[str, int, bytearray]]:
    for name, content in payload.items():
        for number, begin in enumerate(range(0, max(len(content), 1), PIECE_BYTES)):
            yield name, number, bytearray(content[begin : begin + PIECE_BYTES])


def _digest(content: bytes) -> str:
    return f"{len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}"


def _digests(payload: Mapping[str, bytes]) -> dict[str, str]:
    return {name: _digest(content) for name, content in payload.items()}


def _for_json(instance: Any) -> dict[str, Any]:
    given = {
        param.name: instance.getOrDefault(param)
        for param in instance.params
        if instance.isSet(param) and param.name not in instance.IN_PAYLOAD
    }
    json.dumps(given)  # What can't be is noticed here, and not by pyspark in the middle.
    return given


def _under(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    # Of an error of the JVM, the first line says only where it came from.
    if lines and lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        return lines[1].lstrip(": ")[:200]
    return lines[0][:200] if lines else type(error).__name__
