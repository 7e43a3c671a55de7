"""Thrift's compact protocol, just enough to take the headers of a Parquet file apart and put them together again."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


@dataclass
class Field:
    """A field of a struct: its number, its type and its value."""

    id: int
    type: int
    value: Any


@dataclass
class Items:
    """A list: the type of its items, and the items."""

    type: int
    values: list[Any]


@dataclass
class Raw:
    """A value that is bytes already, such as a list that says it is longer than it is."""

    content: bytes


Struct = list[Field]


def field(struct: Struct, *path: int) -> Any:
    """The value of a field, or of a field of a field; None if it is not there."""
    value: Any = struct
    for number in path:
        value = next((each.value for each in value if each.id == number), None)
        if value is None:
            return None
    return value


def change(struct: Struct, number: int, value: Any) -> None:
    """Give a field that is there another value."""
    for each in struct:
        if each.id == number:
            each.value = value


class Reader:
    """Reads values from a place on; `at` is the place after them."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def struct(self) -> Struct:
        fields: Struct = []
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._int()
            fields.append(Field(number, head & 15, self._value(head & 15)))
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == I8:
            return self._byte()
        if kind in (I16, I32, I64):
            return self._int()
        if kind == DOUBLE:
            return struct.unpack("<d", self._bytes(8))[0]
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind in (LIST, SET):
            return self._items()
        if kind == STRUCT:
            return self.struct()
        raise ValueError(f"type {kind}")

    def _items(self) -> Items:
        head = self._byte()
        count, kind = head >> 4, head & 15
        count = self._varint() if count == 15 else count
        if kind in (TRUE, FALSE):  # in a list, a byte each
            return Items(kind, [self._byte() == TRUE for _ in range(count)])
        return Items(kind, [self._value(kind) for _ in range(count)])

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _int(self) -> int:
        coded = self._varint()
        return (coded >> 1) ^ -(coded & 1)


def encoded(struct: Struct) -> bytes:
    """The bytes of a struct."""
    out, last = b"", 0
    for each in struct:
        kind = (TRUE if each.value else FALSE) if each.type in (TRUE, FALSE) else each.type
        step = each.id - last
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _coded_int(each.id)
        out += b"" if kind in (TRUE, FALSE) else _coded(each.type, each.value)
        last = each.id
    return out + b"\0"


def _coded(kind: int, value: Any) -> bytes:
    if isinstance(value, Raw):
        return value.content
    if kind in (TRUE, FALSE):
        return bytes([TRUE if value else FALSE])
    if kind == I8:
        return bytes([value & 255])
    if kind in (I16, I32, I64):
        return _coded_int(value)
    if kind == DOUBLE:
        return struct.pack("<d", value)
    if kind == BINARY:
        return varint(len(value)) + value
    if kind == STRUCT:
        return encoded(value)
    head = bytes([len(value.values) << 4 | value.type]) if len(value.values) < 15 else bytes([0xF0 | value.type])
    count = b"" if len(value.values) < 15 else varint(len(value.values))
    return head + count + b"".join(_coded(value.type, each) for each in value.values)


def _coded_int(value: int) -> bytes:
    return varint((value << 1) ^ (-1 if value < 0 else 0))


def varint(value: int) -> bytes:
    """A number of any size that is not negative, seven bits to a byte."""
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])
