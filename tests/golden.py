"""Golden records: one of each type, as a released version wrote it (`tests/data/golden/<version>`).

`python -m tests.golden v1` writes those of a version that was just released; they are never written again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TypeVar, cast
from zlib import crc32

import msgspec

from schemas import avsc
from schemas.codec import encode
from schemas.entities import Record

FOLDER = Path(__file__).parent / "data" / "golden"
FILE = "records.json"

R = TypeVar("R", bound=Record)


def sample(cls: type[R], path: str = "") -> R:
    """A record whose attributes all differ from each other and from their defaults."""
    path = path or cls.__name__
    return cls(
        **{
            field.name: _value(msgspec.inspect.type_info(field.type), f"{path}.{field.encode_name}")
            for field in msgspec.structs.fields(cls)
        }
    )


def _value(info: msgspec.inspect.Type, path: str) -> Any:
    number = crc32(path.encode())
    match info:
        case msgspec.inspect.IntType():
            # Every length of a number, and both signs.
            value = number * 0x9E3779B97F4A7C15 % 2**63 >> number % 60
            return -value if number % 5 == 0 else value
        case msgspec.inspect.StrType():
            return f"{path.rpartition('.')[2]}-é-{number % 1000}"
        case msgspec.inspect.BytesType():
            return number.to_bytes(4, "big") + b"\x00\xff"
        case msgspec.inspect.BoolType():
            return number % 2 == 0
        case msgspec.inspect.FloatType():
            return number / 1024
        case msgspec.inspect.EnumType(cls=cls):
            return list(cls)[number % len(cls)]
        case msgspec.inspect.UnionType(types=types):
            return _value(next(t for t in types if not isinstance(t, msgspec.inspect.NoneType)), path)
        case msgspec.inspect.VarTupleType(item_type=item):
            return tuple(_value(item, f"{path}[{i}]") for i in range(2))
        case msgspec.inspect.DictType(value_type=value):
            return {f"k{i}": _value(value, f"{path}.k{i}") for i in range(2)}
        case msgspec.inspect.StructType(cls=cls):
            return sample(cast("type[Record]", cls), path)
        case _:
            raise AssertionError(f"no sample for {info}")


def golden(version: str) -> dict[str, tuple[bytes, Any]]:
    """(bytes, JSON of the record) by full name."""
    found = json.loads((FOLDER / version / FILE).read_text(encoding="utf-8"))
    return {name: (bytes.fromhex(one["hex"]), one["record"]) for name, one in found.items()}


def write(version: str) -> Path:
    """Golden records of today's classes; refuses to touch those of an older version."""
    if version != avsc.released_versions()[-1]:
        raise SystemExit(f"{version} is not the newest released version")
    made = {}
    for name, cls in sorted(avsc.record_classes().items()):
        record = sample(cls)
        made[name] = {"hex": encode(record).hex(), "record": msgspec.to_builtins(record)}
    path = FOLDER / version / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{write(sys.argv[1])}\n")
