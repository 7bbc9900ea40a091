"""Owns the database: engine, generation of the tables, and how many rows are written at once.

SQLite (WAL) by default: one file, any number of reading processes, one writer at a time. PostgreSQL where one
machine is outgrown. Knows no event: the folds say what is written, `Store.apply` makes rows and positions one
transaction, and refuses rows of positions that someone else has folded meanwhile.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Delete,
    Engine,
    MetaData,
    Table,
    Update,
    bindparam,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError
from sqlalchemy.schema import CreateSchema, DropSchema

from projections.paging import PAGE_SECRET, SECRET_BYTES
from projections.shape import fingerprint, metadata
from projections.tables import meta, offsets

# A writer that finds another one (a purge by hand, a backup) waits this long.
BUSY_SEC = 10.0
# Connections of one process: as many as an API has threads for reading.
READERS_KEPT = 8
READERS_MORE = 32
WRITER_CACHE_KIB = 65_536
READER_CACHE_KIB = 4_096
# On PostgreSQL the tables live in a schema of their own.
SCHEMA = "horarium"
SHAPE = "shape"
TOPIC_ID = "topic_id"

# Made once: anew for each batch it was a quarter of a small batch's cost.
MOVE = (
    update(offsets)
    .where(offsets.c.partition == bindparam("of"), offsets.c.next_offset == bindparam("before"))
    .values(next_offset=bindparam("after"), at_ms=bindparam("newest_ms"))
)

Row = Mapping[str, object]
Columns = Any  # a table's or `excluded`'s columns, by attribute
Changes = Callable[[Columns, Columns], Mapping[str, ColumnElement[Any]]]


class PositionsMovedError(Exception):
    """Another writer folded these partitions meanwhile: read the positions again."""


class ForeignDatabaseError(Exception):
    """The database file belongs to someone else: give another HORARIUM_DATABASE_URL."""


@dataclass(frozen=True, eq=False)
class Upsert:
    """How rows of a table are written. `changes(old, new)`: what becomes of a row that is there already
    (default: everything is replaced); `when(old, new)`: and whether it changes at all."""

    table: Table
    changes: Changes | None = None
    when: Callable[[Columns, Columns], ColumnElement[bool]] | None = None


@dataclass(frozen=True)
class _Prepared:
    """A statement as the driver takes it, and a row's values in its order (None: by name)."""

    sql: str
    values: Callable[[Row], object] | None


class Writer:
    """One open transaction; runs prepared statements over many rows."""

    def __init__(self, connection: Connection, prepared: dict[object, _Prepared]) -> None:
        self.connection = connection
        self._prepared = prepared

    def upsert(self, how: Upsert, rows: Sequence[Row]) -> None:
        """Inserts or changes rows, at most one a key."""
        if rows:
            known = self._prepared.get(how)
            self._run(known or self._prepare(how, _upsert(how, self.connection.dialect.name)), rows)

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """Inserts rows that are not there."""
        if rows:
            self._run(self._prepared.get(table) or self._prepare(table, insert(table)), rows)

    def each(self, statement: Update | Delete, rows: Sequence[Row]) -> None:
        """Runs a statement with parameters once for each row."""
        if rows:
            self._run(self._prepared.get(statement) or self._prepare(statement, statement), rows)

    def move(self, before: Mapping[int, int], after: Mapping[int, tuple[int, int]]) -> None:
        """Moves positions to `after` (next offset, time); PositionsMovedError if they are not at `before`."""
        for partition, (next_offset, at_ms) in sorted(after.items()):
            move = {"of": partition, "before": before[partition], "after": next_offset, "newest_ms": at_ms}
            moved = self.connection.execute(MOVE, move)
            if moved.rowcount != 1:
                raise PositionsMovedError(f"partition {partition} is not at {before[partition]} any more")

    def _prepare(self, key: object, statement: Any) -> _Prepared:
        # Compiled once and given to the driver as it is: SQLAlchemy's work on each row of an executemany
        # costs more than SQLite's.
        compiled = statement.compile(dialect=self.connection.dialect)
        names = compiled.positiontup
        self._prepared[key] = _Prepared(str(compiled), None if names is None else _by_position(names))
        return self._prepared[key]

    def _run(self, prepared: _Prepared, rows: Sequence[Row]) -> None:
        if self.connection.dialect.name == "postgresql":
            rows = [_without_nul(row) for row in rows]
        values = list(rows) if prepared.values is None else list(map(prepared.values, rows))
        self.connection.exec_driver_sql(prepared.sql, values)


class Store:
    """A read model. Thread-safe; one `Store` a process is enough."""

    def __init__(self, url: str) -> None:
        self.url = check_url(url)
        self._readers = _engine(self.url, for_writing=False)
        self._writer = _engine(self.url, for_writing=True)
        self._prepared: dict[object, _Prepared] = {}

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for queries, with one picture from the first query to the end."""
        with self._readers.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """One transaction, committed at the end of the block."""
        with self._writer.begin() as connection:
            yield Writer(connection, self._prepared)

    def is_current(self) -> bool:
        """Whether the tables are there and of this version's shape. Readers ask this; only the writer makes
        tables."""
        with self.reading() as connection:
            return _is_made(connection) and get_meta(connection, SHAPE) == fingerprint()

    def ensure(self) -> bool:
        """Makes the tables where they are missing or of another version's shape; True if it did."""
        if self.is_current():
            return False
        self.recreate()
        return True

    def recreate(self) -> None:
        """Drops everything and begins a new generation: positions at nothing, page tokens end."""
        with self._writer.begin() as connection:
            _clear(connection)
            metadata.create_all(connection)
            set_meta(connection, PAGE_SECRET, secrets.token_bytes(SECRET_BYTES))
            set_meta(connection, SHAPE, fingerprint())

    def close(self) -> None:
        self._readers.dispose()
        self._writer.dispose()


def get_meta(connection: Connection, name: str) -> bytes | None:
    """A fact about this generation of the tables."""
    return connection.execute(select(meta.c.value).where(meta.c.name == name)).scalar_one_or_none()


def set_meta(connection: Connection, name: str, value: bytes) -> None:
    """Keeps a fact that this generation does not have yet."""
    connection.execute(insert(meta).values(name=name, value=value))


def _is_made(connection: Connection) -> bool:
    return inspect(connection).has_table(meta.name)


def _clear(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        # Tables of ours live in a schema of ours, so nothing of the database's owner is ever dropped.
        connection.execute(DropSchema(SCHEMA, cascade=True, if_exists=True))
        connection.execute(CreateSchema(SCHEMA))
        return
    names = inspect(connection).get_table_names()
    if names and (meta.name not in names or get_meta(connection, SHAPE) is None):
        raise ForeignDatabaseError(f"{connection.engine.url} holds tables that are not Horarium's")
    for name in names:
        # Also tables of older versions, which today's metadata does not know.
        Table(name, MetaData()).drop(connection)


def _upsert(how: Upsert, dialect: str) -> Any:
    statement = (postgresql.insert if dialect == "postgresql" else sqlite.insert)(how.table)
    old, new, keys = how.table.c, statement.excluded, list(how.table.primary_key.columns)
    if how.changes is None:
        changes: Mapping[str, ColumnElement[Any]] = {
            column.name: new[column.name] for column in how.table.c if column not in set(keys)
        }
    else:
        changes = how.changes(old, new)
    if not changes:
        return statement.on_conflict_do_nothing(index_elements=keys)
    when = None if how.when is None else how.when(old, new)
    return statement.on_conflict_do_update(index_elements=keys, set_=changes, where=when)


def _by_position(names: Sequence[str]) -> Callable[[Row], object]:
    # One name alone would give a bare value.
    return itemgetter(*names) if len(names) > 1 else lambda row: tuple(row[name] for name in names)


def _without_nul(row: Row) -> Row:
    # PostgreSQL has no such character in text. A worker's error message must not stop the read model.
    if not any(isinstance(value, str) and "\0" in value for value in row.values()):
        return row
    return {
        k: v.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(v, str) else v for k, v in row.items()
    }


def check_url(text: str) -> URL:
    """The URL of a database that can hold a read model; ValueError names what can."""
    try:
        url = make_url(text)
    except ArgumentError:
        url = None
    if url is not None and url.drivername == "postgresql+psycopg":
        return url
    # One in memory would be another one for each connection.
    if url is not None and url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        return url
    raise ValueError("a database is sqlite:///<file> or postgresql+psycopg://<user>@<host>/<database>")


def _engine(url: URL, *, for_writing: bool) -> Engine:
    # One writer a process; more would only wait for each other.
    pool = {"pool_size": 1} if for_writing else {"pool_size": READERS_KEPT, "max_overflow": READERS_MORE}
    if url.get_backend_name() == "postgresql":
        isolation = "READ COMMITTED" if for_writing else "REPEATABLE READ"
        options = {"options": f"-csearch_path={SCHEMA}"}
        return create_engine(url, connect_args=options, isolation_level=isolation, **pool)
    Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    # By position: the driver looks up names one by one in every row, for half of an upsert's time (measured).
    engine = create_engine(url, paramstyle="qmark", connect_args={"timeout": BUSY_SEC}, **pool)
    cache_kib = WRITER_CACHE_KIB if for_writing else READER_CACHE_KIB
    # A writer takes its place at once: upgraded later, it could find that its picture is out of date.
    begin = "BEGIN IMMEDIATE" if for_writing else "BEGIN"

    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        # The driver would begin transactions by itself, and late: we say when.
        connection.isolation_level = None
        # NORMAL: after a loss of power the newest transactions may be gone, rows and positions together.
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", f"cache_size = -{cache_kib}"):
            connection.execute(f"PRAGMA {pragma}").close()

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine
