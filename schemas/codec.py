"""Records to bytes and back: Avro single-object encoding, the only module that imports fastavro.

`C3 01`, the 8 bytes of the schema's CRC-64-AVRO fingerprint (little-endian), the body. All schemas are
shipped, so no registry is needed, and what a released version wrote is read with the schema that wrote it.

fastavro checks the schemas and makes the fingerprints; the records go through functions made for each type
(`schemas.encoders`, `schemas.decoders`) at the first use of the type. A fingerprint leaves out docs, defaults
and logical types. Two versions that differ only there share one, and may: their bytes are the same, and
defaults come from today's class.
"""

from __future__ import annotations

import struct
from functools import cache

import fastavro
import msgspec
from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas import avsc
from schemas.decoders import Decoder, DecoderCompiler
from schemas.encoders import Encoder, EncoderCompiler
from schemas.entities import Record
from schemas.source import Schema

MARKER = b"\xc3\x01"
_HEADER = 10


class UndecodableError(ValueError):
    """The bytes are no record that this version knows; the message says why."""


class UnencodableError(ValueError):
    """A record's attribute is not of its declared type or does not fit it; the message says which."""


def encode(record: Record) -> bytes:
    """The record as single-object bytes. UnencodableError if an attribute has a wrong type."""
    cls = type(record)
    encoder = _encoders.get(cls) or _make_encoder(cls)
    try:
        return _prefixes[cls] + encoder(record)
    except (TypeError, AttributeError, KeyError, ValueError, OverflowError) as error:
        raise UnencodableError(f"{cls.__name__}: {_complaint(record, error)}") from error


def decode(data: bytes) -> Record:
    """The record in the bytes, of whatever known type. UndecodableError for anything else."""
    decoder = _decoders.get(data[:_HEADER]) or _make_decoder(data)
    try:
        record, end = decoder(data, _HEADER)
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise UndecodableError(f"{_name(data)}: {_ending(error)}") from error
    if end != len(data):
        reason = "ends too early" if end > len(data) else "bytes left over"
        raise UndecodableError(f"{_name(data)}: {reason}")
    return record  # type: ignore[no-any-return]


def fingerprint_of(schema: Schema) -> bytes:
    """The 8 bytes that stand for a complete schema on the wire. fastavro gives them in that very order."""
    fastavro.parse_schema(schema)
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


_encoders: dict[type[Record], Encoder] = {}
_prefixes: dict[type[Record], bytes] = {}
_decoders: dict[bytes, Decoder] = {}


@cache
def _compiler() -> EncoderCompiler:
    return EncoderCompiler(avsc.record_classes())


def _make_encoder(cls: type[Record]) -> Encoder:
    name = next((name for name, known in avsc.record_classes().items() if known is cls), None)
    if name is None:
        raise UnencodableError(f"{cls.__name__} has no schema")
    schema = avsc.complete(name)
    _prefixes[cls] = MARKER + fingerprint_of(schema)
    _encoders[cls] = _compiler().compile(schema)
    return _encoders[cls]


@cache
def _known() -> dict[bytes, tuple[str, str]]:
    """(version, name) by header; today's version is ""."""
    found = {
        MARKER + bytes.fromhex(hexed): (version, name)
        for version in avsc.released_versions()
        for name, hexed in avsc.released_fingerprints(version).items()
        if name in avsc.record_classes()
    }
    for name in avsc.record_classes():
        found[MARKER + fingerprint_of(avsc.complete(name))] = ("", name)
    return found


def _make_decoder(data: bytes) -> Decoder:
    header = data[:_HEADER]
    if data[:2] != MARKER:
        raise UndecodableError("not a single-object encoding")
    if len(header) < _HEADER:
        raise UndecodableError("ends too early")
    if header not in _known():
        raise UndecodableError(f"unknown schema fingerprint {header[2:].hex()}")
    version, name = _known()[header]
    schema = avsc.released(version)[name] if version else avsc.complete(name)
    compiler = DecoderCompiler(avsc.record_classes(), avsc.enum_members())
    _decoders[header] = compiler.compile(schema)
    return _decoders[header]


def _name(data: bytes) -> str:
    return _known()[data[:_HEADER]][1].rpartition(".")[2]


def _ending(error: Exception) -> str:
    match error:
        case IndexError() | struct.error():
            return "ends too early"
        case KeyError():
            return f"no such symbol, branch or boolean: {error}"
        case _:
            return str(error)


def _complaint(record: Record, error: Exception) -> str:
    """msgspec names the attribute; what only Avro minds is left to the error itself."""
    try:
        msgspec.convert(msgspec.to_builtins(record, builtin_types=(bytes,)), type(record))
    except (msgspec.ValidationError, TypeError, UnicodeError) as better:
        return str(better)
    return str(error)
