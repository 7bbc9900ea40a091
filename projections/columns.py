"""Owns how columns are made, once for SQLite and PostgreSQL, and the one `metadata` of all tables."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, LargeBinary, MetaData, Text
from sqlalchemy.types import TypeEngine

# Byte order on both databases: pages are merged in Python and must agree with what SQL sorted.
TEXT: TypeEngine[str] = Text().with_variant(Text(collation="C"), "postgresql")

metadata = MetaData()


def key(name: str) -> Column[str]:
    return Column(name, TEXT, primary_key=True)


def number_key(name: str) -> Column[int]:
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def word(name: str) -> Column[str]:
    return Column(name, TEXT, nullable=False)


def number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


def bytes_(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)
