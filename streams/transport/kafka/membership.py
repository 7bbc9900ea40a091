"""Whether group metadata proves a member, read from librdkafka's own serialised form.

Owns that one question. It has to be asked: before a consumer has joined, and while it is thrown out of its
group, its metadata has generation -1 and no member id, and the broker takes transactional offsets under
that without any check, also for a group with living members (measured on 4.4; it is what producers older
than KIP-447 send). A zombie would not be fenced.
"""

from __future__ import annotations

# "CGMDv2:", generation as int32 little-endian, group id, 0, member id, 0, … (rdkafka_cgrp.c)
_MAGIC = b"CGMDv2:"
_GENERATION = slice(len(_MAGIC), len(_MAGIC) + 4)


def is_member(metadata: object) -> bool:
    """False also for what has another form: better refused than not fenced."""
    if not isinstance(metadata, bytes) or not metadata.startswith(_MAGIC):
        return False
    names = metadata[_GENERATION.stop :].split(b"\0")
    generation = int.from_bytes(metadata[_GENERATION], "little", signed=True)
    return generation >= 0 and len(names) > 2 and names[1] != b""
