"""The bytes of a ModelProto without its big weights, which stay in the file.

protobuf copies all bytes of a model when it parses them. Here each big initializer is replaced by ONNX's external data: a
reference to its bytes in the file.
"""

from __future__ import annotations

from collections.abc import Iterator

BIG = 1 << 16  # bytes of an initializer that stays in the file
GRAPH, INITIALIZER, RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 7, 5, 9, 13, 14  # numbers of fields
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # wire types


def without_weights(data: bytes, name: str) -> bytes:
    """The model in `data`, the content of the file called `name`; `data` itself when it is damaged or has no big weights."""
    try:
        return b"".join(_model(memoryview(data), name)) if len(data) > BIG else data
    except (IndexError, ValueError):
        return data


def _model(data: memoryview, name: str) -> Iterator[bytes | memoryview]:
    for number, start, at, end in _fields(data, 0, len(data)):
        yield _field(number, b"".join(_graph(data, at, end, name))) if number == GRAPH else data[start:end]


def _graph(data: memoryview, begin: int, stop: int, name: str) -> Iterator[bytes | memoryview]:
    for number, start, at, end in _fields(data, begin, stop):
        big = number == INITIALIZER and end - at > BIG
        yield _field(number, b"".join(_tensor(data, at, end, name))) if big else data[start:end]


def _tensor(data: memoryview, begin: int, stop: int, name: str) -> Iterator[bytes | memoryview]:
    outside = False
    for number, start, at, end in _fields(data, begin, stop):
        if number != RAW_DATA or end - at <= BIG:
            yield data[start:end]
            continue
        outside = True
        for key, value in (("location", name), ("offset", str(at)), ("length", str(end - at))):
            yield _field(EXTERNAL_DATA, _field(1, key.encode()) + _field(2, value.encode()))
    if outside:  # behind all fields: of two locations the last counts, and some exporters write the default
        yield _varint(DATA_LOCATION << 3 | _VARINT) + _varint(1)


def _fields(data: memoryview, at: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """For each field: its number, and the offsets of its start, its content and its end. Raises IndexError and ValueError."""
    while at < stop:
        start = at
        key, at = _number(data, at)
        wire = key & 7
        if wire == _LENGTH:
            size, at = _number(data, at)
        elif wire == _VARINT:
            size = _number(data, at)[1] - at
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError("no wire type")
        if at + size > stop:
            raise ValueError("cut short")
        yield key >> 3 if wire == _LENGTH else 0, start, at, at + size
        at += size


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """A varint and the offset of its end."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("no number")


def _varint(value: int) -> bytes:
    octets = bytearray()
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(len(content)) + content
