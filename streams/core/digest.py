"""Hash of a partition's entities: replayed state equals live state, after compaction too."""

from __future__ import annotations

import hashlib

from streams.store.kv import KeyValue


def of_entities(kv: KeyValue) -> str:
    """SHA-256 over all log keys and newest events, in key order; indexes and bookkeeping left out."""
    digest = hashlib.sha256()
    for key, value in kv.scan(b"e", b"f"):
        for part in (key, value):
            digest.update(len(part).to_bytes(4, "big"))
            digest.update(part)
    return digest.hexdigest()
