"""What crosses the network: a head of plain values and named arrays, as Flower's records; and back, everything checked.

An array crosses as its bytes, its type and its shape. Nothing in it can be anything but numbers, and what is said of it
must agree with how many bytes came. Numbers that are not finite are refused: one NaN in one answer would be in every model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

VERSION = 1
HEAD, ARRAYS = "ilk", "arrays"
TYPES = frozenset({"float32", "float64", "int32", "int64", "uint8", "bool"})
LONGEST_HEAD = 1 << 20
MOST_ARRAYS, MOST_DIMENSIONS = 64, 8
LARGEST = 1 << 31  # bytes of one message's arrays, where nobody says less

Arrays = dict[str, NDArray[Any]]


class Refused(ValueError):
    """What came is not what was agreed on."""


@dataclass(frozen=True)
class Parcel:
    """One message, either way: plain values, and arrays by name."""

    head: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


def pack(parcel: Parcel) -> RecordDict:
    """Make Flower's records of a parcel."""
    head = json.dumps({"version": VERSION, **parcel.head}, allow_nan=False)
    arrays = {kind: _packed(np.asarray(array)) for kind, array in parcel.arrays.items()}
    return RecordDict({HEAD: ConfigRecord({"json": head}), ARRAYS: ArrayRecord(arrays)})


def unpack(records: RecordDict, largest: int = LARGEST, finite: bool = True) -> Parcel:
    """Make a parcel of Flower's records, or say why it is refused."""
    if set(records) != {HEAD, ARRAYS}:
        raise Refused(f"records {sorted(map(str, records))[:5]}, not {HEAD} and {ARRAYS}")
    head_record, array_record = records[HEAD], records[ARRAYS]
    if not isinstance(head_record, ConfigRecord) or not isinstance(array_record, ArrayRecord):
        raise Refused("records of another kind")
    if len(array_record) > MOST_ARRAYS:
        raise Refused(f"{len(array_record)} arrays; at most {MOST_ARRAYS}")
    size = sum(len(array.data) for array in array_record.values())
    if size > largest:
        raise Refused(f"arrays of {size:,} bytes; at most {largest:,}")
    return Parcel(
        _head(head_record.get("json")), {str(kind): _unpacked(kind, a, finite) for kind, a in array_record.items()}
    )


def _head(text: Any) -> dict[str, Any]:
    if not isinstance(text, str) or len(text) > LONGEST_HEAD:
        raise Refused("a head that is no text, or too long")
    try:
        head = json.loads(text)
    except (ValueError, RecursionError):
        raise Refused("a head that is not JSON") from None
    if not isinstance(head, dict) or head.get("version") != VERSION:
        raise Refused(f"a head of another version of ilk; this one speaks version {VERSION}")
    return head


def _packed(array: NDArray[Any]) -> Array:
    if array.dtype.name not in TYPES:
        raise TypeError(f"an array of type {array.dtype} cannot be sent; allowed are {', '.join(sorted(TYPES))}")
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return Array(dtype=array.dtype.name, shape=array.shape, stype="raw", data=data)


def _unpacked(kind: str, array: Array, finite: bool) -> NDArray[Any]:
    shape = tuple(array.shape)
    if array.dtype not in TYPES or array.stype != "raw":
        raise Refused(f"'{kind[:50]}' is of type {str(array.dtype)[:50]}")
    if len(shape) > MOST_DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
        raise Refused(f"'{kind[:50]}' has an impossible shape")
    dtype = np.dtype(array.dtype).newbyteorder("<")
    if math.prod(shape) * dtype.itemsize != len(array.data):
        raise Refused(f"'{kind[:50]}' says {shape} of {array.dtype}, but {len(array.data):,} bytes came")
    values = np.frombuffer(array.data, dtype).reshape(shape).astype(array.dtype)  # a copy: what came is read-only
    if finite and values.dtype.kind == "f" and not np.isfinite(values).all():
        raise Refused(f"'{kind[:50]}' has numbers that are not finite")
    return values
