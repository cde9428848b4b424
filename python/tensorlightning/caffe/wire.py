"""Protobuf's wire format, as far as .caffemodel files need it: fields, numbers, and back.

Anything that is not the format is a ValueError.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
_LONGEST_VARINT = 10


@dataclass(frozen=True)
class Field:
    number: int
    kind: int
    # Of a varint: the number. Else the bytes.
    value: int | memoryview


def fields(message: bytes | memoryview) -> list[Field]:
    view = memoryview(message)
    found = []
    position = 0
    while position < len(view):
        key, position = _varint_at(view, position)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ValueError("a field has number 0")
        if kind == VARINT:
            value, position = _varint_at(view, position)
            found.append(Field(number, kind, value))
            continue
        if kind == BYTES:
            size, position = _varint_at(view, position)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise ValueError(f"field {number} is of kind {kind}")
        if size > len(view) - position:
            raise ValueError(f"field {number} goes on after the end")
        found.append(Field(number, kind, view[position : position + size]))
        position += size
    return found


def bytes_of(field: Field) -> memoryview:
    if field.kind != BYTES or not isinstance(field.value, memoryview):
        raise ValueError(f"field {field.number} is a number, where a message or text was expected")
    return field.value


def _values(message: Sequence[Field], number: int) -> list[Field]:
    return [field for field in message if field.number == number]


def numbers(message: Sequence[Field], number: int, kind: np.dtype) -> NDArray:
    """A repeated float or double, packed or not."""
    parts = []
    for field in _values(message, number):
        if field.kind == VARINT or len(field.value) % kind.itemsize != 0:
            raise ValueError(f"field {number} holds no numbers of {kind.itemsize} bytes")
        parts.append(field.value)
    return np.frombuffer(b"".join(parts), kind)


def varints(message: Sequence[Field], number: int) -> list[int]:
    """A repeated whole number that is not negative, packed or not."""
    found = []
    for field in _values(message, number):
        if field.kind == VARINT:
            found.append(field.value)
            continue
        packed = bytes_of(field)
        position = 0
        while position < len(packed):
            value, position = _varint_at(packed, position)
            found.append(value)
    return found


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, content: bytes | memoryview) -> bytes:
    """A text, message or packed numbers."""
    return b"".join([varint(number << 3 | BYTES), varint(len(content)), content])


def again(given: Field) -> bytes:
    """As it was read."""
    if given.kind == BYTES:
        return field(given.number, given.value)
    content = varint(given.value) if given.kind == VARINT else bytes(given.value)
    return varint(given.number << 3 | given.kind) + content


def _varint_at(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST_VARINT):
        if position >= len(view):
            raise ValueError("it ends in the middle of a number")
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position
    raise ValueError("a number is longer than any can be")
