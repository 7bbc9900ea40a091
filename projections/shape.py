"""Owns which tables there are: whoever has `metadata` from here has all of them."""

from __future__ import annotations

import hashlib

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from projections import history_tables, tables
from projections.columns import metadata

__all__ = ["MODULES", "fingerprint", "metadata"]

MODULES = (tables, history_tables)
"""Importing them is what fills `metadata`."""


def fingerprint() -> bytes:
    """Changes whenever the tables do: a database of another shape is dropped and replayed."""
    dialect = sqlite.dialect()
    statements = [str(CreateTable(table).compile(dialect=dialect)) for table in metadata.sorted_tables]
    for table in metadata.sorted_tables:
        statements += sorted(str(CreateIndex(index).compile(dialect=dialect)) for index in table.indexes)
    return hashlib.sha256("\n".join(statements).encode()).digest()
